"""Small programs at level ``tile``, as text, and their meaning in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilec.ir.core import Kernel
from tilec.ir.parser import parse_module
from tilec.ir.verify import verify

Array = npt.NDArray[Any]

ADD = """
kernel @add { |%a: array<f32, M x N, in>, %b: array<f32, M x N, in>, %c: array<f32, M x N, out>|
  %M = tile.extent(%a) {axis = 0} : s32
  %N = tile.extent(%a) {axis = 1} : s32
  tile.parallel(%M, %N) {sizes = ($i, $j)} { |%i: index<$i, M>, %j: index<$j, N>|
    %x = tile.load(%a, %i, %j) : tile<f32, $i x $j>
    %y = tile.load(%b, %i, %j) : tile<f32, $i x $j>
    %z = math.add(%x, %y) : tile<f32, $i x $j>
    tile.store(%c, %z, %i, %j)
  }
}
"""

GEMM = """
kernel @gemm { |%a: array<bf16, M x K, in>, %b: array<bf16, N x K, in>, %c: array<bf16, M x N, out>|
  %M = tile.extent(%a) {axis = 0} : s32
  %N = tile.extent(%b) {axis = 0} : s32
  %K = tile.extent(%a) {axis = 1} : s32
  tile.parallel(%M, %N) {sizes = ($i, $j)} { |%i: index<$i, M>, %j: index<$j, N>|
    %zero = math.constant() {value = 0.0} : f32
    %start = math.fill(%zero) : tile<f32, $i x $j>
    %acc = tile.for(%K, %start) {size = $k} { |%k: index<$k, K>, %sum: tile<f32, $i x $j>|
      %x = tile.load(%a, %i, %k) : tile<bf16, $i x $k>
      %y = tile.load(%b, %j, %k) : tile<bf16, $j x $k>
      %t = tile.transpose(%y) : tile<bf16, $k x $j>
      %d = tile.dot(%x, %t, %sum) : tile<f32, $i x $j>
      flow.yield(%d)
    } : tile<f32, $i x $j>
    %out = math.cast(%acc) {dtype = bf16} : tile<bf16, $i x $j>
    tile.store(%c, %out, %i, %j)
  }
}
"""

SOFTMAX = """
kernel @softmax { |%x: array<f32, M x N, in>, %y: array<f32, M x N, out>|
  %M = tile.extent(%x) {axis = 0} : s32
  tile.parallel(%M) {sizes = ($i,)} { |%i: index<$i, M>|
    %j = tile.whole(%x) {axis = 1, size = $N} : index<$N, N>
    %row = tile.load(%x, %i, %j) : tile<f32, $i x $N>
    %m = math.reduce(%row) {axis = 1, kind = max} : tile<f32, $i>
    %m1 = math.expand(%m) {axis = 1} : tile<f32, $i x 1>
    %mm = math.broadcast(%m1) : tile<f32, $i x $N>
    %shifted = math.sub(%row, %mm) : tile<f32, $i x $N>
    %p = math.exp(%shifted) : tile<f32, $i x $N>
    %s = math.reduce(%p) {axis = 1, kind = add} : tile<f32, $i>
    %s1 = math.expand(%s) {axis = 1} : tile<f32, $i x 1>
    %ss = math.broadcast(%s1) : tile<f32, $i x $N>
    %q = math.div(%p, %ss) : tile<f32, $i x $N>
    %k = tile.whole(%y) {axis = 1, size = $N} : index<$N, N>
    tile.store(%y, %q, %i, %k)
  }
}
"""


def kernel(text: str) -> Kernel:
    """The one kernel of a text without its head line."""
    module = parse_module(f"tir 1 level tile target sm_90a\n{text}")
    verify(module)
    return module.kernels[0]


def bf16_bits(values: Array) -> Array:
    """Float32 values that bf16 holds exactly, as bits."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def bf16_values(bits: Array) -> Array:
    """Bits of bf16 as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
