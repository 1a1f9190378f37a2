"""Plans of the real command, checked by other code: this program knows docs/formats/plan-json.md and nothing else of pawl.

Every rule of that page is checked on plans of every policy, with the dead, with moves, shared stages, slow workers and
memory limits; and each rule is shown to find what it is for in a plan that was spoilt on purpose. The drawings of the same
plans are parsed as XML, the traces as JSON."""
import copy
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from fractions import Fraction

PAWL = os.path.join(os.environ["PAWL_BUILD_DIR"], "pawl")
SHAPE = ["--pipelines", "3", "--stages", "4", "--microbatches", "6"]
PLANS = {
    **{policy: SHAPE + ["--policy", policy] for policy in
       ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "adaptive", "decoupled", "recycle", "pawl")},
    **{f"{policy}, one dead": SHAPE + ["--policy", policy, "--fail", "1:2"] for policy in
       ("1f1b", "zb-h1", "adaptive", "decoupled", "recycle", "pawl")},
    "two dead of a stage": SHAPE + ["--policy", "recycle", "--fail", "1:2,0:2"],
    "two dead of a stage, nobody moves": SHAPE + ["--policy", "recycle", "--fail", "1:2,0:2", "--no-move"],
    "shared stages": ["--pipelines", "4", "--stages", "4", "--microbatches", "32", "--policy", "pawl", "--fail", "1:1"],
    "transfers and odd times": SHAPE + ["--cost", "1.25,0.7,1.1", "--comm", "0.3", "--policy", "recycle", "--fail", "0:3"],
    "little memory": SHAPE + ["--policy", "recycle", "--fail", "1:1", "--memory", "4"],
    "recomputation": SHAPE + ["--profile", "gpt3-6.7b", "--policy", "recycle", "--fail", "1:1", "--memory", "4GiB", "--recompute"],
    "offloading": SHAPE + ["--profile", "gpt3-6.7b", "--policy", "pawl", "--fail", "1:1", "--memory", "4GiB", "--offload"],
    "a model": SHAPE + ["--profile", "gpt3-6.7b", "--policy", "pawl", "--fail", "2:1"],
}
COMPUTE = "FIWBC"


def run(args, form):
    done = subprocess.run([PAWL, "plan", *args, "--format", form], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{args}: {done.stderr}"
    return done.stdout


class Broken(Exception):
    pass


def need(condition, *what):
    if not condition:
        raise Broken(" ".join(str(w) for w in what))


def exact(text):
    """Times as written, not as the nearest double."""
    return Fraction(text)


class Checker:
    def __init__(self, plan):
        self.plan = plan
        self.stages = plan["stages"]
        self.costs = plan["costs"]
        self.live = [w for w in range(plan["pipelines"] * self.stages) if plan["workers"][w]["alive"]]
        self.lists = []
        for worker in plan["workers"]:
            stage = worker["stage"]
            self.lists.append([{**i, "chunk": i.get("chunk", stage)} for i in worker["instructions"]])

    def cells(self):
        for home in range(self.plan["pipelines"]):
            for chunk in range(self.plan["chunks"]):
                for number in range(self.plan["microbatches"]):
                    yield home, chunk, number

    def once(self):
        """Rule 1, and where each instruction of a micro-batch is."""
        self.at = {}
        for w, instructions in enumerate(self.lists):
            worker = self.plan["workers"][w]
            need(worker["alive"] or not instructions, "a dead worker works", w)
            need(w == worker["pipeline"] * self.stages + worker["stage"], "worker out of place", w)
            for position, i in enumerate(instructions):
                if i["op"] in "RS":
                    need(i["home"] is None and i["microbatch"] is None, "R or S of a micro-batch", w)
                    continue
                key = (i["home"], i["chunk"], i["microbatch"], i["op"])
                need(key not in self.at, "twice", key)
                need(i["chunk"] in worker["holds"], "not held", key, w)
                self.at[key] = (w, position, i)
        for cell in self.cells():
            ops = {op: self.at[(*cell, op)] for op in "FIWBCOL" if (*cell, op) in self.at}
            need("F" in ops and (("B" in ops) != ("I" in ops and "W" in ops)), "not once", cell, list(ops))
            need(("I" in ops) == ("W" in ops), "I without W", cell)
            need(len({w for w, _, _ in ops.values()}) == 1, "several hosts", cell)
            order = [ops[op][1] for op in "FCOLIWB" if op in ops]
            need(order == sorted(order), "out of order", cell)
            need(("O" in ops) == ("L" in ops) and not ("O" in ops and "C" in ops), "copies", cell)

    def gradient(self, home, chunk, number):
        return self.at.get((home, chunk, number, "I")) or self.at.get((home, chunk, number, "B"))

    def message(self, sender, receiver, delay, what):
        (w1, _, i1), (w2, _, i2) = sender, receiver
        need(i1.get("to") == w2 and i2.get("from") == w1, "peers", what)
        need(exact(i2["start"]) >= exact(i1["end"]) + (exact(delay) if w1 != w2 else 0), "too early", what)

    def messages(self):
        """Rule 2."""
        last = self.plan["chunks"] - 1
        for home, chunk, number in self.cells():
            forward, back = self.at[home, chunk, number, "F"], self.gradient(home, chunk, number)
            cost = self.costs["chunks"][chunk]
            need(chunk > 0 or ("from" not in forward[2] and "to" not in back[2]), "beyond the first chunk")
            if chunk < last:
                self.message(forward, self.at[home, chunk + 1, number, "F"], cost["send_forward"], (home, chunk, number, "F"))
            else:
                need("to" not in forward[2] and "from" not in back[2], "beyond the last chunk")
            if chunk > 0:
                self.message(back, self.gradient(home, chunk - 1, number), cost["send_backward"], (home, chunk, number, "I"))

    def duration(self, w, i):
        cost = self.costs["chunks"][i["chunk"]]
        names = {"F": ["forward"], "C": ["forward"], "I": ["input_grad"], "W": ["weight_grad"],
                 "B": ["input_grad", "weight_grad"], "R": ["reduce"], "S": ["step"], "O": ["offload"], "L": ["load"]}
        slow = self.costs["slow"][w] if self.costs["slow"] and i["op"] not in "ROL" else "1"
        return sum(exact(cost[n]) for n in names[i["op"]]) * exact(slow)

    def alone(self):
        """Rule 3, and durations."""
        period = exact(self.plan["period"])
        for w in self.live:
            spans = []
            for i in self.lists[w]:
                had = exact(i["end"]) - exact(i["start"])
                need(abs(had - self.duration(w, i)) <= Fraction(2, 10**6), "duration", w, i)
                if i["op"] in COMPUTE + "RS":
                    spans.append((exact(i["start"]), exact(i["end"])))
            need(spans == sorted(spans), "not in list order", w)
            for (_, end), (start, _) in zip(spans, spans[1:]):
                need(start >= end, "overlaps", w, float(start))
            need(not spans or spans[-1][1] - spans[0][0] <= period, "meets itself in the next iteration", w)

    def steps(self):
        """Rules 4 and 5."""
        came, gradients, step_end, first = {}, {}, {}, {}
        for w in self.live:
            done = Fraction(0)
            for i in self.lists[w]:
                c = i["chunk"]
                if i["op"] == "R":
                    came.setdefault(c, {})[w] = done
                elif i["op"] in "WB":
                    gradients[c] = gradients.get(c, 0) + 1
                    need(w not in came.get(c, {}), "gradient after R", w, c)
                elif i["op"] == "S":
                    need(w in came.get(c, {}), "S before R", w, c)
                    step_end[c] = max(step_end.get(c, 0), exact(i["end"]))
                elif i["op"] == "F":
                    first[c] = min(first.get(c, exact(i["start"])), exact(i["start"]))
                if i["op"] in COMPUTE + "RS":
                    done = exact(i["end"])
        for w in self.live:
            for kind in "RS":
                had = sorted(i["chunk"] for i in self.lists[w] if i["op"] == kind)
                need(had == self.plan["workers"][w]["holds"], kind, "not once for each chunk held", w)
            for i in self.lists[w]:
                if i["op"] == "R":
                    need(exact(i["start"]) >= max(came[i["chunk"]].values()), "R too early", w, i)
        for c in range(self.plan["chunks"]):
            if self.plan["staggered"]:
                need(step_end[c] - first[c] <= exact(self.plan["period"]), "next forward before the step", c)

    def period(self):
        """The period and the summary are what the instructions say."""
        spans = {}
        for w in self.live:
            for i in self.lists[w]:
                for key in (("stage", w % self.stages), ("chunk", i["chunk"]), "all"):
                    low, high = spans.get(key, (exact(i["start"]), exact(i["end"])))
                    spans[key] = min(low, exact(i["start"])), max(high, exact(i["end"]))
        whole = spans.pop("all")
        if not self.plan["staggered"]:
            spans = {"all": whole}
        need(max(high - low for low, high in spans.values()) == exact(self.plan["period"]), "period")
        need(float(self.plan["lower_bound"]) <= float(self.plan["period"]) * (1 + 1e-12), "bound above the period")
        need(len(self.live) == int(self.plan["alive"]), "alive")
        need(sum(len(i) for i in self.lists) == int(self.plan["instructions"]), "instructions")

    def memory(self):
        """Rule 6."""
        limits = self.costs["memory_limit"]
        for w in self.live:
            stored, peak = {}, Fraction(0)
            for i in self.lists[w]:
                cell, cost = (i["home"], i["chunk"], i["microbatch"]), self.costs["chunks"][i["chunk"]]
                if i["op"] in "FCL":
                    again = i["op"] == "F" and (*cell, "C") in self.at
                    stored[cell] = exact(cost["kept" if again else "full"])
                elif i["op"] == "O":
                    stored[cell] = exact(cost["kept"])
                elif i["op"] == "I":
                    stored[cell] = exact(cost["after_input"])
                elif i["op"] in "WB":
                    del stored[cell]
                peak = max(peak, sum(stored.values()))
            had = exact(self.plan["peak_memory"][w])
            need(abs(peak - had) <= Fraction(1, 10**6) * (1 + had), "peak", w, float(peak), float(had))
            need(not limits or peak <= exact(limits[w]) * (1 + Fraction(1, 10**9)), "over memory", w)

    def all(self):
        for rule in (self.once, self.messages, self.alone, self.steps, self.period, self.memory):
            rule()


def load(text):
    plan = json.loads(text, parse_float=str, parse_int=str)
    for key in ("pipelines", "stages", "chunks", "microbatches"):
        plan[key] = int(plan[key])
    for worker in plan["workers"]:
        worker.update(pipeline=int(worker["pipeline"]), stage=int(worker["stage"]), holds=[int(h) for h in worker["holds"]])
        for i in worker["instructions"]:
            for key in ("home", "microbatch", "chunk", "from", "to"):
                if i.get(key) is not None:
                    i[key] = int(i[key])
    return plan


def spoil(plan):
    """(what, a spoilt copy) for each rule."""
    def change(what, do):
        spoilt = copy.deepcopy(plan)
        do(spoilt)
        return what, spoilt

    def of(p, op, worker=0):
        return [i for i in p["workers"][worker]["instructions"] if i["op"] == op]

    def drop(p):
        p["workers"][0]["instructions"].remove(of(p, "F")[1])

    def double(p):
        p["workers"][0]["instructions"].insert(2, copy.deepcopy(of(p, "F")[0]))

    def wrong_peer(p):
        of(p, "F")[0]["to"] = 5

    def early(p):
        first = of(p, "F", 1)[0]
        first["start"], first["end"] = "0", "1"

    def swap(p):
        p["workers"][0]["instructions"][0:2] = p["workers"][0]["instructions"][1::-1]

    def no_step(p):
        p["workers"][0]["instructions"].remove(of(p, "S")[0])

    def short(p):
        p["period"] = "26.999999"

    def peak(p):
        p["peak_memory"][0] = "1"

    def limit(p):
        p["costs"]["memory_limit"] = ["2"] * len(p["workers"])

    return [change(what.__name__, what) for what in (drop, double, wrong_peer, early, swap, no_step, short, peak, limit)]


def main():
    for name, args in PLANS.items():
        plan = load(run(args, "json"))
        try:
            Checker(plan).all()
        except Broken as why:
            sys.exit(f"{name}: {why}")
        if name == "recycle, one dead":
            assert plan["period"] == plan["lower_bound"] == "27", plan["period"]
            for what, spoilt in spoil(plan):
                try:
                    Checker(spoilt).all()
                except Broken:
                    continue
                sys.exit(f"{what}: not found")
        if name == "two dead of a stage":
            assert len(plan["moves"]) == 1 and plan["period"] == "27", plan["moves"]
        if name == "recomputation":
            assert int(plan["recomputed"]) > 0
        if name == "shared stages":
            assert plan["shared"], "nothing shared"
        xml.etree.ElementTree.fromstring(run(args, "svg"))
        assert json.loads(run(args, "chrome"))["traceEvents"]
        assert run(args, "text").startswith(plan["policy"])
    with tempfile.TemporaryDirectory() as folder:
        full = subprocess.run([PAWL, "plan", *SHAPE, "--format", "json", "-o", os.path.join(folder, "no", "such")],
                              capture_output=True, text=True, check=False)
        assert full.returncode != 0 and full.stderr.count("\n") == 1, full.stderr
    print(f"ok: {len(PLANS)} plans")


main()
