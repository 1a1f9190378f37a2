"""Checks a plan that `pawl plan --format json` printed, knowing nothing of pawl: what must be executed, in what
order, when, where, in how much memory, and how long an iteration is. Standard library only. See
docs/formats/plan-json.md.
"""

from collections import defaultdict
from fractions import Fraction

TICKS = 1_000_000  # times are whole multiples of this part of the unit


def ticks(time):
    return round(Fraction(time) * TICKS)


class Wrong(Exception):
    pass


def require(good, *why):
    if not good:
        raise Wrong(" ".join(map(str, why)))


class Plan:
    """One iteration: instructions by worker, by micro-batch and chunk."""

    def __init__(self, data):
        self.data = data
        self.pipelines, self.stages, self.microbatches = data["pipelines"], data["stages"], data["microbatches"]
        self.chunks = data["chunks"]
        self.lists = {}
        self.at = {}  # (op, home, chunk, microbatch) -> (worker, start, end)
        self.ends = []  # (op, worker, chunk, start, end) of R and S
        for w in data["workers"]:
            key = (w["pipeline"], w["stage"])
            require(key not in self.lists, "worker", key, "is listed twice")
            self.lists[key] = w
            for i in w["instructions"]:
                self.add(key, i)

    def add(self, worker, i):
        chunk, start, end = i.get("chunk", worker[1]), ticks(i["start"]), ticks(i["end"])
        require(0 <= chunk < self.chunks, "chunk", chunk, "of", i)
        if i["op"] in "RS":
            require(i["home"] is None and i["microbatch"] is None, "R and S have no micro-batch:", i)
            self.ends.append((i["op"], worker, chunk, start, end))
            return
        require(i["op"] in "FIWBCOL", "unknown op", i)
        require(0 <= i["home"] < self.pipelines and 0 <= i["microbatch"] < self.microbatches, "no such", i)
        key = (i["op"], i["home"], chunk, i["microbatch"])
        require(key not in self.at, key, "is executed twice")
        self.at[key] = (worker, start, end)

    def cells(self):
        for home in range(self.pipelines):
            for chunk in range(self.chunks):
                for microbatch in range(self.microbatches):
                    yield home, chunk, microbatch

    def grad(self, cell):
        """The I or B of a cell."""
        both = [k for k in ("I", "B") if (k, *cell) in self.at]
        require(len(both) == 1, cell, "has", both or "no input-gradient")
        return self.at[(both[0], *cell)]

    def last(self, cell):
        """The W or B of a cell."""
        both = [k for k in ("W", "B") if (k, *cell) in self.at]
        require(len(both) == 1, cell, "has", both or "no weight-gradient")
        return self.at[(both[0], *cell)]


def check_work(plan):
    require(len(plan.lists) == plan.pipelines * plan.stages, "workers:", len(plan.lists))
    for cell in plan.cells():
        require(("F", *cell) in plan.at, cell, "has no forward")
        host, _, forward_end = plan.at[("F", *cell)]
        grad, last = plan.grad(cell), plan.last(cell)
        require(grad[0] == host == last[0], cell, "runs on", host, grad[0], last[0])
        require(plan.lists[host]["alive"], cell, "runs on", host, "which is dead")
        require(grad[1] >= forward_end, cell, "gradient before its forward")
        if ("W", *cell) in plan.at:
            require(("I", *cell) in plan.at, cell, "has W and B")
            require(last[1] >= grad[2], cell, "weight-gradient before its input-gradient")
        if ("C", *cell) in plan.at:
            again = plan.at[("C", *cell)]
            require(again[0] == host and again[1] >= forward_end and again[2] <= grad[1], cell, "recompute")


def check_messages(plan, comm):
    comm = ticks(comm)
    for home, chunk, microbatch in plan.cells():
        if chunk == 0:
            continue
        before, after = (home, chunk - 1, microbatch), (home, chunk, microbatch)
        host_before, _, end = plan.at[("F", *before)]
        host_after, start, _ = plan.at[("F", *after)]
        way = 0 if host_before == host_after else comm
        require(start >= end + way, "forward of", after, "starts at", start, "before its input,", end + way)
        back_start, back_end = plan.grad(before)[1], plan.grad(after)[2]
        require(back_start >= back_end + way, "gradient of", before, "starts before its input")


def check_lists(plan, costs, slow):
    """One thing at a time, each as long as it takes."""
    parts = plan.chunks // plan.stages
    forward, grad, weight = (ticks(c) for c in costs)
    long = {"F": forward, "C": forward, "I": grad, "W": weight, "B": grad + weight}
    for key, w in plan.lists.items():
        now = None
        require(w["alive"] or not w["instructions"], "dead worker", key, "has work")
        for i in w["instructions"]:
            start, end = ticks(i["start"]), ticks(i["end"])
            require(now is None or start >= now, key, i, "starts before", now)
            require(end >= start, key, i, "ends before it starts")
            now = end
            if i["op"] in long:
                want = long[i["op"]] * slow.get(key, 1) / parts
                require(abs(end - start - want) <= 1, key, i, "takes", end - start, "not", want)


def check_ends(plan):
    """R of a chunk ends when all its gradients are there, S after R, each once where the chunk is held."""
    gradients = defaultdict(int)
    holders = defaultdict(set)
    for home, chunk, microbatch in plan.cells():
        host, _, end = plan.last((home, chunk, microbatch))
        gradients[chunk] = max(gradients[chunk], end)
        holders[chunk].add(host)
    reduced, stepped = {}, {}
    for op, worker, chunk, start, end in plan.ends:
        into = reduced if op == "R" else stepped
        require((worker, chunk) not in into, op, worker, chunk, "twice")
        into[worker, chunk] = (start, end)
    require(set(reduced) == set(stepped), "R and S differ:", set(reduced) ^ set(stepped))
    for (worker, chunk), (_, end) in reduced.items():
        require(end >= gradients[chunk], "R of chunk", chunk, "on", worker, "ends before the last gradient")
        require(stepped[worker, chunk][0] >= end, "S before R on", worker)
        require(chunk in plan.lists[worker]["holds"], worker, "steps chunk", chunk, "which it does not hold")
    for chunk, hosts in holders.items():
        for host in hosts:
            require((host, chunk) in reduced, host, "has gradients of", chunk, "but no R")


def period_of(plan, staggered):
    spans = defaultdict(lambda: [None, None])
    for (_, stage), w in plan.lists.items():
        for i in w["instructions"]:
            chunk = i.get("chunk", stage)
            for name in (("stage", stage), ("chunk", chunk)) if staggered else ("all",):
                first, last = spans[name]
                start, end = ticks(i["start"]), ticks(i["end"])
                spans[name] = [start if first is None else min(first, start), end if last is None else max(last, end)]
    return max(last - first for first, last in spans.values())


def check_period(plan, staggered):
    data = plan.data
    period = ticks(data["period"])
    require(data["staggered"] == staggered, "staggered:", data["staggered"])
    if staggered:
        by_stage = defaultdict(list)
        for (_, stage), w in plan.lists.items():
            by_stage[stage] += [(ticks(i["start"]), ticks(i["end"])) for i in w["instructions"]]
        spans = [max(e for _, e in t) - min(s for s, _ in t) for t in by_stage.values()]
        require(max(spans) <= period, "period", period, "but a stage takes", max(spans))
    require(period_of(plan, staggered) == period, "period", period, "computed", period_of(plan, staggered))
    everything = [ticks(i["end"]) for w in plan.lists.values() for i in w["instructions"]]
    require(ticks(data["makespan"]) <= max(everything) or staggered, "makespan", data["makespan"])
    require(ticks(data["lower_bound"]) <= period, "bound above the period")
    gap = (data["period"] - data["lower_bound"]) / data["lower_bound"]
    require(abs(gap - data["gap"]) < 1e-9, "gap", data["gap"], "computed", gap)


def check_memory(plan, limits):
    """Micro-batches from forward to weight-gradient, where nothing is recomputed."""
    parts = plan.chunks // plan.stages
    for number, (key, w) in enumerate(sorted(plan.lists.items())):
        stored = peak = 0
        for i in w["instructions"]:
            stored += {"F": 1, "W": -1, "B": -1}.get(i["op"], 0)
            peak = max(peak, stored)
        require(abs(peak / parts - plan.data["peak_memory"][number]) < 1e-9, key, "peak", peak / parts,
                "reported", plan.data["peak_memory"][number])
        if limits is not None:
            require(peak / parts <= limits.get(key, float("inf")), key, "stores", peak, "of", limits.get(key))


def check_homes(plan):
    """Whoever lives executes what is his own; chunks of his own stage alone."""
    if plan.chunks != plan.stages:
        return
    for home, chunk, microbatch in plan.cells():
        host = plan.at[("F", home, chunk, microbatch)][0]
        require(host[1] == chunk, (home, chunk, microbatch), "runs at stage", host[1])
        if plan.lists[home, chunk]["alive"]:
            require(host == (home, chunk), (home, chunk, microbatch), "runs on", host, "though its home lives")


def check(data, costs=(1, 1, 1), comm=0, staggered=True, fixed_homes=True, limits=None, slow=None, memory=True):
    plan = Plan(data)
    check_work(plan)
    check_messages(plan, comm)
    check_lists(plan, costs, slow or {})
    check_ends(plan)
    check_period(plan, staggered)
    if memory:
        check_memory(plan, limits)
    if fixed_homes:
        check_homes(plan)
    return plan
