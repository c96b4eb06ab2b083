# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What PyTorch calls at `import torch` (entry point `torch.backends`)."""

import warnings

_registering = False


def autoload() -> None:
    """Registers the backends. Never fails: that would break `import torch`."""
    global _registering
    # `import trnccl` imports torch, which comes here again.
    if _registering:
        return
    _registering = True
    try:
        from trnccl import _backend

        _backend.register()
    except Exception as error:  # pylint: disable=broad-except
        warnings.warn(f"trnccl: its backends aren't registered: {error!r}",
                      stacklevel=2)
    finally:
        _registering = False
