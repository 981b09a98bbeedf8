"""The Trainer of transformers, with an evaluation after each ten steps."""

from __future__ import annotations

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 160

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(0, 200, (16,))
        return {"input_ids": ids, "labels": ids}


config = GPT2Config(vocab_size=200, n_positions=32, n_embd=32, n_layer=2, n_head=2)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=4,
        num_train_epochs=1,
        logging_steps=5,
        report_to=[],
        save_strategy="no",
        eval_strategy="steps",
        eval_steps=10,
        use_cpu=True,
    )
    trainer = Trainer(
        GPT2LMHeadModel(config),
        arguments,
        train_dataset=Tokens(),
        eval_dataset=torch.utils.data.Subset(Tokens(), range(40)),
    )
    trainer.train()
    print("own", trainer.state.global_step)
