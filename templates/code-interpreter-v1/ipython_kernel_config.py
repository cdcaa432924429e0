"""Settings of every Python kernel, whose output is read by programs."""

import sys

c = get_config()  # noqa: F821 (IPython gives it)

# Tracebacks are plain text.
c.InteractiveShell.colors = "nocolor"
# Lists are shown in full.
c.PlainTextFormatter.max_seq_length = 0
# No history: programs do not read it, and clones must not share a file.
c.HistoryManager.hist_file = ":memory:"
# No pause after an execution: clients wait for the `idle` status.
c.IPythonKernel._execute_sleep = 0
# Clients do not debug over the kernel's connection, and the debugger takes a tenth of its memory.
# Programs may still import it: startup/00-debugger.py.
sys.modules["debugpy"] = None


def _hold():
    """Backpressure: a program that prints waits while the client does not keep up.

    By default ZeroMQ silently drops messages for a slow reader. During an execution there is a
    reader, and at most 64 messages wait for it. Output of threads after the execution may have no
    reader, so it is dropped when 64 messages wait.
    """
    import threading

    import zmq
    from ipykernel.iostream import CHILD, IOPubThread, OutStream

    begin, send = IOPubThread.__init__, IOPubThread._really_send
    schedule, write = IOPubThread.schedule, OutStream.write

    def begin_holding(self, socket, *args, **options):
        # A full queue is an error, not a silent loss.
        socket.setsockopt(zmq.SNDHWM, 64)
        socket.setsockopt(zmq.XPUB_NODROP, 1)
        self.executing = False
        self.flows = threading.Event()
        self.flows.set()
        begin(self, socket, *args, **options)

    def wait(self):
        if not self.flows.is_set() and threading.current_thread() is not self.thread:
            # In a forked process no thread would set the event.
            if self._check_mp_mode() != CHILD:
                self.flows.wait()

    def send_or_hold(self, message, *args, **options):
        if self._check_mp_mode() == CHILD:
            return send(self, message, *args, **options)
        topic = bytes(message[0])
        if topic.endswith(b".status") and b"execute_request" in bytes(message[4]):
            # An execution lasts from its `busy` status to its `idle` status.
            self.executing = True
            ends = b'"idle"' in bytes(message[6])
        else:
            ends = False
        try:
            send(self, message, *args, **{**options, "flags": zmq.NOBLOCK})
        except zmq.Again:
            if self.executing:
                self.flows.clear()
                try:
                    send(self, message, *args, **options)
                finally:
                    self.flows.set()
        self.executing = self.executing and not ends

    def schedule_when_it_flows(self, call):
        wait(self)
        schedule(self, call)

    def write_when_it_flows(self, text):
        wait(self.pub_thread)
        return write(self, text)

    IOPubThread.__init__, IOPubThread._really_send = begin_holding, send_or_hold
    IOPubThread.schedule, OutStream.write = schedule_when_it_flows, write_when_it_flows


_hold()
del _hold
