"""Starts Bash's kernel without the pauses of a person at a terminal.

It types into a terminal, and its library waits 50 ms before each line for programs that ask for
passwords. Here the next line is only sent when Bash has asked for it, and the start is some fifty
lines: half a second instead of three and a half.
"""

import pexpect


class Prompt(pexpect.spawn):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.delaybeforesend = None


pexpect.spawn = Prompt

from bash_kernel.kernel import BashKernel  # noqa: E402
from ipykernel.kernelapp import IPKernelApp  # noqa: E402

IPKernelApp.launch_instance(kernel_class=BashKernel)
