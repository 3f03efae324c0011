"""What the page of hardware facts says beside the readings.

Idea: each fact has a place in a section and a sentence about what the compiler does because of it;
the questions that were open before anything was measured are listed with what settles them.

Invariants: a sentence says what the compiler does, never what a run found, except where no run of
these experiments could find it (`OPEN`).

Never: renders anything.
"""

from __future__ import annotations

from dataclasses import dataclass

DESCRIPTORS = "wgmma A"
"""How the names of all facts about descriptors begin."""


@dataclass(frozen=True)
class Place:
    """Facts whose name begins with `name`, what the compiler does about them, and their figures.

    `columns` names the figures to tabulate out of readings that are one row a case; "" stands for a
    reading that is a single figure. The descriptors share one table.
    """

    name: str
    because: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    places: tuple[Place, ...]


SECTIONS = (
    Section(
        "Tensor maps and TMA",
        (
            Place(
                "TMA load layout",
                "`layout.shared` makes shared tiles of exactly this form, `layout.tma` reads box "
                "and swizzle off them, and the verifier refuses a map that does not fit its tile "
                "(`ir/copies.py`).",
            ),
            Place(
                "TMA load edges",
                "A copy at the edge is a whole box: the barrier of a stage expects the same bytes "
                "everywhere, and `fill-padding` counts on the zeros.",
            ),
            Place(
                "TMA load fill",
                "`fill-padding` adds no fill along a ragged K that TMA loads, whatever lies in the "
                "padding of the rows.",
            ),
            Place(
                "TMA load inner coordinate",
                "A tile starts at a multiple of its own size, and `layout.tma` refuses boxes whose "
                "rows are no multiple of 16 bytes, so every start is one.",
            ),
            Place(
                "TMA store inner coordinate",
                "As for loads; a store's start is never negative, because tiles are counted from "
                "the start of the array.",
            ),
            Place(
                "TMA store clipping",
                "`form-stores` uses a TMA store at an edge along memory only if the extent is "
                "known to be a multiple of 16 bytes, else each element has its own predicate.",
            ),
            Place(
                "TMA narrow boxes",
                "`layout.tma` makes boxes exactly as wide as their swizzle and refuses others, so "
                "nothing depends on this.",
            ),
            Place(
                "TMA stripes",
                "`layout.tma.folded_box` plans such a copy; passes take a box a stripe, which has "
                "no condition on the extent.",
            ),
            Place(
                "TMA wide strides",
                "A tensor map takes rows as they lie: padded rows and slices of larger arrays need "
                "no copy (`passes/mapping.py`).",
            ),
            Place(
                "TMA address alignment",
                "16 bytes are all that `runtime.specialise` asks of an address before it promises "
                "that an array can be mapped.",
            ),
            Place(
                "TMA stride 0",
                "`runtime.specialise` does not promise that an array with a stride of 0 can be "
                "mapped: it is read without TMA.",
            ),
            Place(
                "TMA tf32 type",
                "Nothing yet: products take f16 and bf16. `tensormap.py` maps tf32 as such, so a "
                "load would round where wgmma alone truncates.",
            ),
            Place(
                "dynamic shared base",
                "`place-shared` aligns what is swizzled to 1024 bytes by offset alone, and adds no "
                "code that aligns the base. A descriptor masks the address, because in a cluster "
                "its bits from 24 up name the CTA.",
            ),
        ),
    ),
    Section(
        "wgmma descriptors and fragments",
        (
            Place(
                DESCRIPTORS,
                "`layout.descriptor` measures both distances of a descriptor on the layout of the "
                "tile and refuses layouts that do not have them, so a product reads A and B as "
                "they lie, K-major or not. `layout.fragments` has the registers of A and of the "
                "result.",
            ),
            Place(
                "8-bit P permutation",
                "Nothing yet: products take 16-bit elements, where the result's registers already "
                "are A's.",
            ),
            Place(
                "stmatrix",
                "`layout.matrices` plans both instructions from the layouts alone; results of "
                "products leave through stmatrix (`form-stores`).",
            ),
            Place(
                "tf32 inputs",
                "Nothing yet: `tf32` is a storage type, the language has no product of it.",
            ),
        ),
    ),
    Section(
        "Accumulation width",
        (
            Place(
                "accumulation width",
                "A product of f16 or bf16 sums in one accumulator over all of K. For fp8 that "
                "would lose bits (partial sums would have to be moved to f32 registers), and the "
                "language has no fp8 product.",
                ("into the accumulator", "inside one instruction", "largest tried"),
            ),
        ),
    ),
    Section(
        "Rates",
        (
            Place(
                "wgmma rate",
                "Products are wgmma only. `passes/costs.py` ranks tiles with shared memory at 128 "
                "bytes a cycle: both operands of one ss instruction then take 16 + n/4 cycles, "
                "which is what the narrow ones below took.",
                ("cycles an instruction", "share of peak"),
            ),
            Place("mma.sync rate", "No pass selects mma.sync."),
            Place(
                "instruction rates",
                "Exponentials are `ex2.approx.ftz.f32` with the factor log2 e before it, also on "
                "16-bit tiles: the packed form is no faster. `weave` mixes instructions of several "
                "pipes.",
                ("results a cycle",),
            ),
        ),
    ),
    Section(
        "Ordering costs",
        (
            Place(
                "cost of ordering",
                "Arrivals have the default form, and the only proxy fence is "
                "`fence.proxy.async.shared::cta` (`backend_ptx/templates.py`). This version makes "
                "no clusters, so no arrival is remote.",
                ("",),
            ),
        ),
    ),
    Section(
        "Latencies",
        (
            Place(
                "result latency",
                "Nothing: ptxas orders instructions. `emulator/report/latencies.py` has them for "
                "its timelines.",
                ("cycles",),
            ),
            *(
                Place(name, "Only timelines use it (`emulator/report/latencies.py`).", columns)
                for name, columns in (
                    ("load latency", ("",)),
                    ("bulk copy latency", ("",)),
                    ("L2 rate", ()),
                )
            ),
        ),
    ),
    Section(
        "Assembler",
        (
            Place(
                "identical wgmma dropped",
                "Products of one tile are different instructions, each with its own step of K, so "
                "nothing is lost; the timed loops above use a descriptor an instruction.",
            ),
        ),
    ),
)

#: What was open before the first run: the question, and either the facts that settle it or a
#: sentence that says why none does.
OPEN = (
    (
        "Do the worked descriptors read operands right, MN-major and unswizzled too?",
        DESCRIPTORS,
        "",
    ),
    (
        "Does permuting V's rows make up for the order of 8-bit P in registers?",
        "8-bit P permutation",
        "",
    ),
    (
        "Is register q of stmatrix the matrix whose rows lanes 8q to 8q+7 address, plain and "
        "transposed?",
        "stmatrix",
        "",
    ),
    ("Is the base of dynamic shared memory aligned to 1024 bytes?", "dynamic shared base", ""),
    (
        "What does a remote arrive with .release.cluster cost over the default form?",
        "cost of ordering",
        "",
    ),
    (
        "Does it cost throughput that ptxas sinks exponentials below `wait_group`, when two "
        "warpgroups take turns?",
        "",
        "Only a whole attention kernel shows it, so no run here does. In hand-written ones, timed "
        "on an H200, forcing the exponentials before the wait by a branch lost 6 to 16 %; the "
        "useful overlap was between warpgroups. tilec leaves that order to ptxas.",
    ),
    ("What share of the peak does mma.sync reach?", "mma.sync rate", ""),
    ("Does ptxas drop wgmmas that are written twice?", "identical wgmma dropped", ""),
    (
        "Which rows of the charts published for FlashAttention-3 are causal?",
        "",
        "No measurement here can settle it: it is a question about somebody else's chart. "
        "`benchmarks` runs its own baselines instead.",
    ),
)
