"""How processes that torchrun has started find each other, and who is missing when they do not."""

from __future__ import annotations

import datetime
import json
import os
import secrets
import time

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, ProcessGroup, Store

from gsparc._processes import World
from gsparc.exceptions import ProcessesError

__all__ = ["meet"]

_PATIENCE = datetime.timedelta(minutes=30)  # for the others in the middle of work: one may have to read a lot
_LOOK = "Look whether it was started with the same number of processes and the same address"


def meet(found: World, timeout: float) -> tuple[ProcessGroup, int]:
    """Wait until all are there, then open the lines between them; also says how often they have met before."""
    store = _store(found, timeout)
    token, before = _agree(PrefixStore("gsparc", store), found, timeout)
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus:
        torch.cuda.set_device(found.local_rank % gpus)
    own_gpu = gpus >= found.local_size and dist.is_nccl_available()
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if own_gpu else "gloo",
            store=PrefixStore(f"gsparc/{token}", store),
            rank=found.rank,
            world_size=found.size,
            timeout=datetime.timedelta(seconds=timeout),
        )
    except RuntimeError as error:
        raise ProcessesError(
            f"process {found.rank} of {found.size} has found the others, but cannot reach one of them within "
            f"{timeout:g} s. Look whether a firewall is between the machines; GLOO_SOCKET_IFNAME names the network "
            "interface to use."
        ) from error
    group = dist.new_group(timeout=_PATIENCE)  # the default one waits only as long as it may take to meet
    assert isinstance(group, ProcessGroup)
    return group, before


def _store(found: World, timeout: float) -> Store:
    try:
        return next(
            dist.rendezvous("env://", found.rank, found.size, timeout=datetime.timedelta(seconds=timeout))  # type: ignore[call-overload]
        )[0]
    except (RuntimeError, ValueError, OSError) as error:  # torch's own errors are RuntimeErrors
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise ProcessesError(
            f"process {found.rank} of {found.size} has waited {timeout:g} s for the others at {address}. {_LOOK}, and "
            "whether the machines can reach that port; --join-timeout waits longer."
        ) from error


def _agree(store: Store, found: World, timeout: float) -> tuple[str, int]:
    """A name for this meeting that all its processes have confirmed, and the number of earlier ones.

    torchrun keeps its store when it starts processes again, so that what dead ones have written is still there. Each
    process therefore writes a number of its own; the first one names a meeting of the numbers that it has found, and
    names another when one of them changes; a process confirms a meeting only if its own number is in it.
    """
    # the first process knows who is missing: it is to be the one that says so
    number, end = secrets.token_hex(8), time.monotonic() + timeout + (0.0 if found.first else 2.0)
    store.set(f"number/{found.rank}", number)
    numbers: list[str | None] = []
    token = ""
    while time.monotonic() < end:
        if found.first:
            present = [_read(store, f"number/{rank}") for rank in range(found.size)]
            if present != numbers:
                numbers, token = present, secrets.token_hex(8)
                store.set("meeting", json.dumps({"token": token, "numbers": numbers}))
            if not _unconfirmed(store, token, found.size):
                before = store.add("meetings", 1) - 1
                store.set(f"complete/{token}", str(before))
                return token, before
        else:
            named = json.loads(_read(store, "meeting") or '{"numbers": []}')
            if number in named["numbers"]:
                token = named["token"]
                store.set(f"confirmed/{token}/{found.rank}", "1")
                before = _read(store, f"complete/{token}")
                if before is not None:
                    return token, int(before)
        time.sleep(0.02)
    absent = ", ".join(str(rank) for rank in _unconfirmed(store, token, found.size)) if found.first else "one of them"
    raise ProcessesError(
        f"{found.size} processes were to train together, but within {timeout:g} s not all have joined process "
        f"{found.rank}; missing: {absent}. {_LOOK}; --join-timeout waits longer."
    )


def _read(store: Store, name: str) -> str | None:
    return store.get(name).decode() if store.check([name]) else None


def _unconfirmed(store: Store, token: str, size: int) -> list[int]:
    return [rank for rank in range(1, size) if not store.check([f"confirmed/{token}/{rank}"])]
