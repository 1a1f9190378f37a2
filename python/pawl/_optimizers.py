"""Which optimizers of PyTorch a stored state can be of.

A state_dict holds options and moments, not the class. Options are held against the arguments of the classes
in torch.optim here, moments against the table below; what newer versions of PyTorch added does not count.
Adam and AdamW store the same. Tested in tests/python/migrate_test.py.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from typing import Any

import torch

from . import errors

NEWER = {"maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"}
HOME = "torch.optim."
_MOMENTS = {  # of a parameter that was stepped: (always there, there with some options)
    "Adam": ({"exp_avg", "exp_avg_sq"}, {"max_exp_avg_sq"}),
    "AdamW": ({"exp_avg", "exp_avg_sq"}, {"max_exp_avg_sq"}),
    "NAdam": ({"exp_avg", "exp_avg_sq", "mu_product"}, set()),
    "RAdam": ({"exp_avg", "exp_avg_sq"}, set()),
    "SparseAdam": ({"exp_avg", "exp_avg_sq"}, set()),
    "Adamax": ({"exp_avg", "exp_inf"}, set()),
    "Adagrad": ({"sum"}, set()),
    "Adadelta": ({"square_avg", "acc_delta"}, set()),
    "RMSprop": ({"square_avg"}, {"momentum_buffer", "grad_avg"}),
    "Rprop": ({"prev", "step_size"}, set()),
    "ASGD": ({"ax", "mu", "eta"}, set()),
    "SGD": (set(), {"momentum_buffer"}),
    "Muon": ({"momentum_buffer"}, set()),
}  # others: by their options alone


def known() -> dict[str, set[str]]:
    """The options, without `NEWER`, of each optimizer that torch.optim has here."""
    return {
        name: set(inspect.signature(kind).parameters) - {"params"} - NEWER
        for name, kind in sorted(vars(torch.optim).items())
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
        and kind is not torch.optim.Optimizer
    }


def against(name: str, options: set[str], moments: Iterable[set[str]]) -> str:
    """Why a state with these options, and these moments of each parameter, is not of torch.optim's `name`;
    "" where it may be."""
    classes = known()
    missing = classes[name] - options
    if missing:
        return f"{name} has the options {_told(missing)}, and the state does not"
    for other, wanted in classes.items():
        if classes[name] < wanted <= options:
            more = _told(wanted - classes[name])
            return f"the state has the options {more} of {other}, and {name} does not"
    if name not in _MOMENTS:
        return ""
    always, sometimes = _MOMENTS[name]
    for had in moments:
        if not always <= had or had - always - sometimes - {"step"}:
            return f"{name} keeps {_told(always | sometimes)} of a parameter, and the state has {_told(had)}"
    return ""


def fitting(options: set[str], moments: Iterable[set[str]]) -> list[str]:
    """The optimizers of torch.optim that the state can be of."""
    listed = list(moments)
    return [name for name in known() if not against(name, options, listed)]


def check(given: str | None, groups: list[dict[str, Any]], state: dict[Any, dict[str, Any]],
          source: str) -> str:
    """The name of the class, of a state_dict's `groups` and `state`. Argument: none is given, or one that
    torch.optim does not have (other packages' are given with a dot: "package.Lion", and not checked).
    StateMismatch: the state is none of its."""
    options = {key for group in groups for key in group} - {"params"}
    moments = [set(map(str, value)) for value in state.values()]
    fits = fitting(options, moments)
    fit = f"it can be of {', '.join(fits)}" if fits else "it fits no optimizer of torch.optim here"
    if not given:
        raise errors.Argument(f"{source}: holds an optimizer's state, not its class: name it (--optimizer, "
                              f"optimizer_class=); {fit}")
    name = given.removeprefix(HOME)
    if "." in name:
        return name.rpartition(".")[2]
    if name not in known():
        lower = {kind.lower(): kind for kind in known()}
        near = [lower[n] for n in difflib.get_close_matches(name.lower(), lower, cutoff=0.5)] or list(known())
        raise errors.Argument(f"{source}: torch.optim has no {name}; near are {', '.join(near)}. The class "
                              f"of another package is named with it (package.{name})")
    why = against(name, options, moments)
    if why:
        raise errors.StateMismatch(f"{source}: the optimizer's state is not of {name}: {why}; {fit}")
    return name


def _told(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
