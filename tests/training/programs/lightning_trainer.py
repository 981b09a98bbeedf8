"""Lightning: two epochs, each with a validation. Its bars are rich's, or tqdm's with `tqdm`."""

from __future__ import annotations

import sys
import time

import lightning
import torch
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(32, 1)

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        loss = self.layer(batch).pow(2).mean()
        self.log("train_loss", loss, prog_bar=True)
        time.sleep(0.1)
        return loss

    def validation_step(self, batch: torch.Tensor, number: int) -> None:
        self.log("val_loss", self.layer(batch).pow(2).mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


trainer = lightning.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    callbacks=[TQDMProgressBar() if "tqdm" in sys.argv else RichProgressBar()],
)
trainer.fit(
    Model(),
    torch.utils.data.DataLoader(torch.randn(80, 32), batch_size=4),
    torch.utils.data.DataLoader(torch.randn(40, 32), batch_size=4),
)
print("own", trainer.global_step)
