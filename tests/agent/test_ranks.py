from typing import Any

from gputop.agent.linux.ranks import NAMES, Rank, kept_variables, rank_of

ELASTIC = (
    "LOCAL_RANK=1 RANK=5 GROUP_RANK=1 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node01 "
    "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none"
)
SRUN = "SLURM_JOB_ID=4711 SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_NTASKS=16 SLURM_LOCALID=3"
ENVIRONMENTS = [
    ELASTIC,
    ELASTIC.replace("=node01", "=127.0.0.1"),
    ELASTIC.replace("=node01", "=localhost"),
    ELASTIC.replace("=node01", "=::1"),
    # srun starts a torchrun on each host.
    f"{SRUN} {ELASTIC}",
    SRUN,
    f"{SRUN} MASTER_ADDR=n1 MASTER_PORT=9",
    # The script of a batch job is no rank.
    "SLURM_JOB_ID=4711 SLURM_PROCID=0 SLURM_NTASKS=16",
    "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=2 PMIX_NAMESPACE=prterun-a@1",
    "PMI_RANK=1 PMI_SIZE=2",
    "PMIX_RANK=1048575",
    "PMIX_RANK=1048576",
    "RANK=1 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=ab12",
    "RANK=0 WORLD_SIZE=1",
    # RANK alone may mean anything.
    "RANK=1",
    "RANK=8 WORLD_SIZE=8",
    "RANK=-1 WORLD_SIZE=8",
    "RANK=first WORLD_SIZE=many",
    f"RANK=1{'0' * 99} WORLD_SIZE=2{'0' * 99}",
    "",
]


def test_ranks_of_launchers(snapshot: Any) -> None:
    told = ""
    for environment in ENVIRONMENTS:
        data = f"PATH=/bin {environment} TOKEN=secret".replace(" ", "\0").encode() + b"\0"
        variables = kept_variables(data)
        assert variables.keys() <= NAMES
        told += f"{environment}: {rank_of(variables, 'here', 77)}\n"
    assert told == snapshot


def test_bytes_that_are_no_environment() -> None:
    long = b"RANK=" + b"1" * 9999 + b"\0"
    for data in (b"", b"\0\0\0", b"RANK", b"=", b"RANK=\0", b"\xff=\xfe\0", long):
        assert rank_of(kept_variables(data), "here", 77) == Rank()
