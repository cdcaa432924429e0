//! Known reasons for missed targets.

/// The rows that a reason explains.
enum Rows {
    /// The row with this name.
    Named(&'static str),
    /// Rows whose names start with this.
    Begin(&'static str),
    /// Rows whose names end with this.
    End(&'static str),
    /// Rows whose names contain this.
    Have(&'static str),
}

impl Rows {
    fn have(&self, what: &str) -> bool {
        match self {
            Self::Named(name) => what == *name,
            Self::Begin(begin) => what.starts_with(begin),
            Self::End(end) => what.ends_with(end),
            Self::Have(part) => what.contains(part),
        }
    }
}

const RESTORE: &str = "Shoal's time includes the network slot, the rules, the commits, the daemon's new settings \
    and the command. The bare restore ends before anything inside answers.";

/// The first match applies.
const REASONS: [(Rows, &str); 14] = [
    (
        Rows::Begin("resume of 1 GiB"),
        "gVisor reads the pages with many threads while one thread puts the sandbox's kernel \
        together. On two cores that thread gets its turns among them: the kernel takes 0.4 s, as \
        long as all pages, and 25 ms without them. Letting fewer reads go on at a time (by fanotify) \
        started the kernel in 0.1 s, but its first command came later than without: each page that \
        it waits for stands behind others.",
    ),
    (
        Rows::Begin("pause, with "),
        "An answered pause survives a power failure: it waits for the disk, which the bare \
        checkpoint does not (the row below includes `sync`). It also freezes the sandbox before \
        the memory is written, so that memory and files belong to one moment and a failure ends \
        nothing. Shoal writes to a disk with quotas in a file, the bare tool to the machine's own \
        file system.",
    ),
    (Rows::End("→ first command"), RESTORE),
    (Rows::End("from a built template"), RESTORE),
    (
        Rows::Begin("gateway, 50 connections"),
        "hyper parses and writes each request, and the gateway checks the sandbox, the token and \
        the limit; nginx does none of these. Server, gateway and load generator share two cores.",
    ),
    (
        Rows::Have("load of 256 MiB"),
        "nginx reads and writes files in the machine's kernel, with `sendfile`. Here the bytes \
        pass the sandbox's network (under gVisor a network stack and file system of its own), \
        the daemon and the gateway, on the same two cores as the client. The row below shows the \
        gateway's share.",
    ),
    (
        Rows::Begin("fork into "),
        "A single clone already uses both cores for part of its time, because the digest is \
        computed while the runtime starts and reads. That leaves less to overlap.",
    ),
    (
        Rows::Begin("memory of a waiting member with a half-started Python kernel"),
        "ipykernel alone has written to 61 MiB (by gVisor's count), which a restore copies for \
        each member. Added to that are the heap of gVisor's kernel (18 MiB) and the files that \
        it caches in the same memory (26 MiB), which no call releases.",
    ),
    (
        Rows::Named("`commands.run(\"true\")` (runsc)"),
        "Starting `bash -l -c true` inside gVisor takes 6.4 ms by itself (`posix_spawn` to the \
        end, measured from inside; `/bin/true` alone 3.6 ms), and both sides pay for it. What \
        remains is the sandbox's network stack and the daemon's work between the end of the \
        process and the end of the stream.",
    ),
    (
        Rows::Named("`1+1` on a warm context"),
        "The request passes the gateway, the sandbox's network stack, the daemon and the kernel's \
        four sockets, which `jupyter_client` uses too. An execution ends for a client when the \
        kernel reports `idle`, after its last output.",
    ),
    (
        Rows::Named("create → first `1+1` (code interpreter)"),
        "In addition to the restore: the network slot, the commits, the daemon's new settings and \
        the execution itself (9 ms on a warm context).",
    ),
    (
        Rows::Begin("server memory, "),
        "The server ran all other groups before: the comparison is its memory without sandboxes, \
        some seconds after the last one. A server that only ran this group has 33 MiB with 200 \
        sandboxes and 25 MiB with none.",
    ),
    (
        Rows::Begin("pool refill"),
        "A restore keeps more than one processor busy for most of its time, so little overlaps on \
        two. The claims, and the first activity of the claimed sandboxes, fall into the same \
        time.",
    ),
    (
        Rows::Begin("create → ready beside "),
        "Each start shares the two cores with the background work of gVisor's idle sandboxes.",
    ),
];

/// The reason for missing the target of the row `what`, if known.
pub(crate) fn of(what: &str) -> Option<&'static str> {
    let found = REASONS.iter().find(|(rows, _)| rows.have(what));
    found.map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_matches_any_part_of_a_row_name() {
        let pause = of("pause, with 61 MiB of memory").unwrap();
        assert!(pause.contains("waits for the disk"));
        assert_eq!(
            of("resume → first command"),
            of("create → ready from a built template")
        );
        assert!(
            of("download of 256 MiB (runsc)")
                .unwrap()
                .contains("sendfile")
        );
        assert_eq!(of("kill (runc)"), None);
    }
}
