//! What stands in the way of the figures that are missed, as far as it was found out.

/// Which rows a reason is about.
enum Rows {
    /// The one of this name.
    Named(&'static str),
    /// Those whose names begin so.
    Begin(&'static str),
    /// Those whose names end so.
    End(&'static str),
    /// Those whose names have it in them.
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

const RESTORE: &str = "The network slot, the rules, the committed states, the daemon's new settings \
and the command are in Shoal's time and not in that of the bare restore, which is over before anything \
inside answers.";

/// The first that is about a row counts.
const REASONS: [(Rows, &str); 14] = [
    (
        Rows::Begin("pause, with "),
        "A pause outlives the machine: it waits for the disk, which the bare checkpoint does not (the \
         row below it is the one with `sync`), holds the sandbox still before its memory is written \
         and not only while, so that memory and files are of one moment and a failure ends nothing, \
         and it counts a digest of all that was written. Its pages go to a disk with quotas in a \
         file, those of the bare one to the machine's own.",
    ),
    (Rows::End("→ first command"), RESTORE),
    (Rows::End("from a built template"), RESTORE),
    (
        Rows::Begin("gateway, 50 connections"),
        "The request is parsed and written by hyper with a check of the sandbox, the token and the \
         limit each time, where nginx does none; server, gateway and load share two cores, so what \
         the gateway takes the server lacks.",
    ),
    (
        Rows::Have("load of 256 MiB"),
        "nginx sends and takes a file in the machine's own kernel, with `sendfile`. Here the bytes \
         pass the sandbox's network (in gVisor a network stack and a file system of its own), the \
         daemon and the gateway, on the same two cores as the client; the row below shows how much \
         of it is the gateway's.",
    ),
    (
        Rows::Begin("fork into "),
        "A clone alone uses both cores for a part of its time (the digest is counted while the \
         runtime starts and reads), so less is left to overlap.",
    ),
    (
        Rows::Named("memory of an interpreter that has answered"),
        "Two kernels run, as is asked for. Deno's holds a table of 76 MiB that only its benchmarks \
         would need, and has no way to leave it out (from 2.8 on it holds two). Python's has some \
         130 MiB with numpy, pandas (which loads pyarrow) and matplotlib. gVisor's own processes are \
         some 60 MiB. What is restored is written to, so sandboxes share none of it.",
    ),
    (
        Rows::Begin("memory of a waiting member with a half-started Python kernel"),
        "ipykernel alone has 61 MiB that it has written to (gVisor's own count), which a restore \
         copies for each member. Beside it are the sentry's heap (18 MiB) and the files that gVisor \
         keeps in that same memory (26 MiB), for whose return it has no call.",
    ),
    (
        Rows::Named("`commands.run(\"true\")` (runsc)"),
        "Starting `bash -l -c true` inside gVisor takes 6.4 ms by itself (`posix_spawn` to the end, \
         from a program inside; `/bin/true` alone 3.6 ms), which both sides pay. What can still be \
         saved is the rest: the way through the sandbox's own network stack, and the daemon's turns \
         between the end of the process and the end of the stream.",
    ),
    (
        Rows::Named("`1+1` on a warm context"),
        "It passes the gateway, the sandbox's own network stack, the daemon and the kernel's four \
         sockets, which are also `jupyter_client`'s; an execution ends for a client when the kernel \
         says that it is idle, behind its last output.",
    ),
    (
        Rows::Named("create → first `1+1` (code interpreter)"),
        "Beside the restore there are the network slot, the committed states, the daemon's new \
         settings and the execution itself (9 ms warm).",
    ),
    (
        Rows::Begin("server memory, "),
        "The server has done all other groups before: the row beside it is what it has without a \
         sandbox, some seconds after the last. One that is started for this group alone has 33 MiB \
         with 200 of them, and 25 MiB with none.",
    ),
    (
        Rows::Begin("refill of "),
        "A restore keeps more than one processor busy for most of its time, so on two of them little \
         overlaps; the claims, and what a sandbox does in its first moments with its user, fall into \
         the same time.",
    ),
    (
        Rows::Begin("create → ready beside "),
        "Each start shares the two cores with what gVisor's sandboxes do by themselves while they \
         are idle.",
    ),
];

/// The reason of the row called `what`, if one is known.
pub(crate) fn of(what: &str) -> Option<&'static str> {
    let found = REASONS.iter().find(|(rows, _)| rows.have(what));
    found.map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_told_by_any_part_of_their_name() {
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
