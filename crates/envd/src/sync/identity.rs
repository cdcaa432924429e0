//! Threads that act with the rights of a user.
//!
//! Linux keeps ids for each thread; only the C library's wrappers change them for all threads of a process. The thread changes
//! its effective ids, not the filesystem ids alone: gVisor has no `setfsuid`. Processes in the sandbox gain
//! nothing by it, because the real and saved ids stay, and the daemon cannot be traced. A thread never takes its rights
//! back; it ends with its work.

use std::io;

use rustix::fs::{Gid, Uid};
use rustix::process::{getegid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use tokio::sync::oneshot;

/// Stack size of a thread. Trees are walked without recursion.
const STACK: usize = 512 << 10;

/// The user whose rights a thread has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// The user.
    pub(super) uid: u32,
    /// All its groups, the primary one first.
    pub(super) groups: Vec<u32>,
}

impl Identity {
    /// Runs some work on a thread of its own with these rights.
    ///
    /// # Errors
    /// When there is no thread, or the daemon has no right to act as the user.
    pub(super) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (done, finished) = oneshot::channel();
        self.spawn(move |assumed| {
            // The caller may have gone.
            let _ = done.send(assumed.map(|()| work()));
        })?;
        let ended = |_| io::Error::other("the work ended without a result");
        finished.await.map_err(ended)?
    }

    /// Starts a thread with these rights. The argument of the work is whether it has them; without, it must not touch the user's files.
    ///
    /// # Errors
    /// When there is no thread.
    pub(super) fn spawn(
        self,
        work: impl FnOnce(io::Result<()>) + Send + 'static,
    ) -> io::Result<()> {
        let thread = std::thread::Builder::new().stack_size(STACK);
        thread.spawn(move || work(self.assume())).map(drop)
    }

    /// Gives the calling thread these rights.
    fn assume(&self) -> io::Result<()> {
        let own = geteuid();
        if own.as_raw() == self.uid {
            return Ok(());
        }
        if !own.is_root() {
            let text = "the daemon does not run as root and cannot act as another user";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let primary = groups.first().copied().unwrap_or_else(getegid);
        set_thread_groups(&groups)?;
        set_thread_res_gid(None, Some(primary), None)?;
        set_thread_res_uid(None, Some(Uid::from_raw(self.uid)), None)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[tokio::test]
    async fn work_has_the_rights_of_the_user_and_others_keep_theirs() {
        if !geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let (secret, made) = (dir.path().join("secret"), dir.path().join("made"));
        std::fs::write(&secret, "x").unwrap();
        std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
        let user = Identity {
            uid: 61_234,
            groups: vec![61_235, 61_236],
        };
        let (asked, new) = (secret.clone(), made.clone());
        let work = move || {
            std::fs::write(new, "").unwrap();
            std::fs::read(asked).unwrap_err().kind()
        };
        let refused = user.run(work).await.unwrap();
        assert_eq!(refused, io::ErrorKind::PermissionDenied);
        let meta = std::fs::metadata(&made).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (61_234, 61_235));
        assert_eq!(std::fs::read(&secret).unwrap(), b"x");
    }
}
