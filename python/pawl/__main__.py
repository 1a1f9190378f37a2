"""python -m pawl import|export: docs/migrating.md. Ends with the exit codes of docs/errors.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from . import errors, migrate


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Instead of ending with 2."""
        self.print_usage(sys.stderr)
        raise errors.Argument(message)


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="python -m pawl")
    verbs = parser.add_subparsers(dest="verb", required=True)
    take = verbs.add_parser("import", help="make a run of what torch.save, torch.distributed.checkpoint or "
                           "safetensors wrote")
    take.add_argument("source")
    take.add_argument("run")
    take.add_argument("--step", type=int, required=True, help="optimizer steps done")
    take.add_argument("--optimizer", metavar="CLASS", help="class of the optimizer that is stored: AdamW")
    take.add_argument("--model-key", metavar="NAME", help="entry that is the model, where it is not model, "
                      "model_state_dict or state_dict")
    take.add_argument("--optimizer-key", metavar="NAME", help="entry that is the optimizer, where it is not "
                      "optimizer, optimizer_state_dict, optimizer_states or optim")
    take.add_argument("--names", metavar="FILE", help="parameter names in the optimizer's order, one a line")
    take.add_argument("--skip", metavar="NAME", action="append", default=[],
                      help="of a torch.distributed.checkpoint folder: what to leave out")
    give = verbs.add_parser("export", help="write the newest step as safetensors in Hugging Face's layout")
    give.add_argument("run")
    give.add_argument("target")
    give.add_argument("--key", default="model")
    give.add_argument("--shard-bytes", type=int, default=migrate.SHARD_BYTES)
    return parser.parse_args(words)


def _import(a: argparse.Namespace) -> int:
    names = Path(a.names).read_text().split() if a.names else None
    if (Path(a.source) / migrate.METADATA).exists():
        return migrate.import_dcp(a.source, a.run, step=a.step, optimizer_class=a.optimizer, names=names,
                                  model_key=a.model_key, optimizer_key=a.optimizer_key, skip=a.skip)
    if a.skip:
        raise errors.Argument(f"--skip is for folders of torch.distributed.checkpoint: no "
                              f"{migrate.METADATA} in {a.source}")
    if Path(a.source).is_dir() or a.source.endswith(".safetensors"):
        if a.optimizer or a.names or a.model_key or a.optimizer_key:
            raise errors.Argument("--optimizer, --names and keys are for what PyTorch saved")
        return migrate.import_safetensors(a.source, a.run, step=a.step)
    left_out: list[str] = []
    count = migrate.import_torch(a.source, a.run, step=a.step, optimizer_class=a.optimizer, names=names,
                                 model_key=a.model_key, optimizer_key=a.optimizer_key, left_out=left_out)
    if left_out:
        print(f"pawl: left out of {a.source}: {', '.join(left_out)}", file=sys.stderr)
    return count


def main(words: list[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    try:
        a = _arguments(words)
        if a.verb == "export":
            step = migrate.export(a.run, a.target, key=a.key, shard_bytes=a.shard_bytes)
            print(f"{a.target}: step {step} of {a.run}")
        else:
            print(f"{a.run}: {_import(a)} tensors, step {a.step}")
    except errors.Error as e:
        print(f"pawl: {e}", file=sys.stderr)
        return e.exit_code
    except OSError as e:
        print(f"pawl: {e}", file=sys.stderr)
        return errors.Io.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
