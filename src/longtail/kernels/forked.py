"""Kernels in a process that was forked off: they go on, each on one thread.

Servers that load a model and then fork (gunicorn with ``--preload``, ``multiprocessing`` by ``fork``) are common. GNU
OpenMP, whose threads numba uses, does not survive a fork: numba ends such a child at its first parallel kernel. So
parallel kernels reach numba's threads by way of a function of ours, under the name that machine code knows
(``numba_parallel_for``). In a child it does the whole work in the thread that asks, which is what numba's own function
does with a single thread. Results are the same, whatever the number of threads.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.np.ufunc import parallel

_NAME = "numba_parallel_for"
# What numba gives: the work, its arguments, their counts and steps, data; two sizes, and the number of threads.
_GIVEN, _NEEDED = 8, 4

_state: dict[str, Any] = {"forked": False}


def is_forked() -> bool:
    """Whether this process was forked off after kernels were loaded: it must wake no threads of OpenMP."""
    return bool(_state["forked"])


def survive_forks() -> None:
    """Once, before the first kernel is loaded: machine code is bound to the function that the name has then."""
    launch: Any = parallel._launch_threads
    launch()
    address = llvm.address_of_symbol(_NAME)
    if address is None:  # another numba: it works as before, and its children as numba says
        return
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module, machine = llvm.parse_assembly(_assembly(address)), llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    alone = ctypes.c_int32.from_address(engine.get_global_value_address("alone"))
    llvm.add_symbol(_NAME, engine.get_function_address("parallel_for_or_alone"))
    _state["engine"] = engine  # which owns the machine code

    def after_fork() -> None:
        alone.value, _state["forked"] = 1, True

    os.register_at_fork(after_in_child=after_fork)


def _assembly(address: int) -> str:
    """Where `alone` is not 0 the work is done here and now; else by numba's own function at `address`."""
    word = ir.IntType(8 * struct.calcsize("P"))
    whole, some = (ir.FunctionType(ir.VoidType(), [word] * count) for count in (_GIVEN, _NEEDED))
    module = ir.Module()
    alone = ir.GlobalVariable(module, ir.IntType(32), "alone")
    alone.initializer = ir.Constant(ir.IntType(32), 0)
    function = ir.Function(module, whole, "parallel_for_or_alone")
    builder = ir.IRBuilder(function.append_basic_block())
    forked = builder.icmp_unsigned("!=", builder.load(alone), ir.Constant(ir.IntType(32), 0))
    with builder.if_else(forked) as (here, there):
        with here:
            builder.call(builder.inttoptr(function.args[0], some.as_pointer()), function.args[1 : 1 + _NEEDED])
        with there:
            builder.call(builder.inttoptr(ir.Constant(word, address), whole.as_pointer()), function.args)
    builder.ret_void()
    return str(module)
