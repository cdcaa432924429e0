"""Settings of every Python kernel: what comes out is read by programs."""

import sys

c = get_config()  # noqa: F821 (IPython gives it)

# Tracebacks are passed on as text.
c.InteractiveShell.colors = "nocolor"
# A list is shown to its end, however long it is.
c.PlainTextFormatter.max_seq_length = 0
# Nobody looks for what was run before, and a sandbox that was cloned shares no file with its twin.
c.HistoryManager.hist_file = ":memory:"
# Whoever reads waits for the word that all has been said, and not for a time.
c.IPythonKernel._execute_sleep = 0
# Nobody debugs over the kernel's connection, and the debugger is a tenth of its memory. Programs
# may use it: startup/00-debugger.py.
sys.modules["debugpy"] = None


def _hold():
    """Has whoever prints wait while nobody reads it.

    ZeroMQ drops what a slow reader leaves, and says so to nobody. While something is executed its
    reader is there, and at most 64 messages wait for it; what a thread prints after that is dropped
    once they do, as nobody may ever read it.
    """
    import threading

    import zmq
    from ipykernel.iostream import CHILD, IOPubThread, OutStream

    begin, send = IOPubThread.__init__, IOPubThread._really_send
    schedule, write = IOPubThread.schedule, OutStream.write

    def begin_holding(self, socket, *args, **options):
        # What nobody reads is told, and not dropped.
        socket.setsockopt(zmq.SNDHWM, 64)
        socket.setsockopt(zmq.XPUB_NODROP, 1)
        self.executing = False
        self.flows = threading.Event()
        self.flows.set()
        begin(self, socket, *args, **options)

    def wait(self):
        if not self.flows.is_set() and threading.current_thread() is not self.thread:
            # A process that was forked has nobody who would say that it flows again.
            if self._check_mp_mode() != CHILD:
                self.flows.wait()

    def send_or_hold(self, message, *args, **options):
        if self._check_mp_mode() == CHILD:
            return send(self, message, *args, **options)
        topic = bytes(message[0])
        if topic.endswith(b".status") and b"execute_request" in bytes(message[4]):
            # What belongs to an execution is between these two, which are part of it.
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
