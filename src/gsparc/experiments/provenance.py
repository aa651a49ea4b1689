"""Which versions, which machine and which source a result is from; nothing that names the machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from gsparc._version import __version__

__all__ = ["commit", "container_limits", "cores", "hardware", "memory_gb", "source", "versions"]

_CONTROL = Path("/sys/fs/cgroup")
_DISTRIBUTIONS = ("torch", "numpy", "scipy", "scikit-learn", "faiss-cpu", "torch-geometric")


def versions() -> dict[str, str]:
    """Versions of Python, of gsparc and of the packages that figures depend on."""
    found = {"gsparc": __version__, "python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def cores() -> int:
    """Processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def hardware() -> dict[str, Any]:
    """Cores, processor, memory and GPU."""
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {
        "cores": cores(),
        "cpu": _cpu_model(),
        "memory_gb": memory_gb(),
        "gpu": gpu,
        "system": platform.system(),
    }


def commit() -> str:
    """The source's commit; the environment variable ``GSPARC_COMMIT`` speaks for a copy without its history."""
    if os.environ.get("GSPARC_COMMIT"):
        return os.environ["GSPARC_COMMIT"]
    folder = Path(__file__).resolve().parent
    if not (folder.parents[2] / "pyproject.toml").is_file():
        return "unknown"  # an installed package: a repository around it is another one
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip() or "unknown"


def source() -> str:
    """SHA-256 over the package's code: another one after any change to it, committed or not, and wherever it lies."""
    package, digest = Path(__file__).resolve().parents[1], hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package).as_posix()}\n".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def memory_gb() -> float | None:
    """Memory of the machine, where the system tells."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):  # not on Windows
        return None


def container_limits() -> tuple[float | None, float | None]:
    """Cores and GB of memory that this process may use, where it is in a container (Linux) that limits them."""
    quota = _numbers("cpu.max") or _numbers("cpu/cpu.cfs_quota_us") + _numbers("cpu/cpu.cfs_period_us")
    memory = _numbers("memory.max") or _numbers("memory/memory.limit_in_bytes")
    limited = len(quota) == 2 and min(quota) > 0
    return quota[0] / quota[1] if limited else None, memory[0] / 1e9 if memory else None


def _numbers(name: str) -> list[float]:
    """What a file of the control group holds; nothing where it is missing or says ``max``."""
    try:
        return [float(word) for word in (_CONTROL / name).read_text(encoding="utf-8").split()]
    except (OSError, ValueError):
        return []
