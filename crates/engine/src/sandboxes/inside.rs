//! A way into a sandbox that runs: commands and files, as far as its run lasts.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{self, Either};
use futures_util::stream::{self, BoxStream, StreamExt};
use shoal_core::BoxFuture;
use shoal_core::auth::SandboxPermit;
use shoal_core::catalog::{Catalog, Lookup, NotResumed, Route};

use super::Sandboxes;
use super::catalog::EngineCatalog;
use crate::guest::{
    Guest, GuestBytes, GuestCommand, GuestControl, GuestDoor, GuestEntry, GuestError, GuestFile,
    GuestProcess, TerminalSize,
};
use shoal_core::ports::sandboxes::SandboxError;

/// A way into one run of a sandbox. What is under way when the run ends fails, and does not hang:
/// nothing answers any more at the address of a sandbox that is gone.
#[derive(Clone)]
pub struct Inside {
    guest: Arc<dyn Guest>,
    catalog: EngineCatalog,
    route: Arc<Route>,
    door: GuestDoor,
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inside")
            .field("sandbox", &self.route.sandbox)
            .finish_non_exhaustive()
    }
}

impl Sandboxes {
    /// The way into a sandbox. One that is paused is woken if traffic may wake it.
    ///
    /// # Errors
    /// [`SandboxError::Paused`] when it is and stays so, [`SandboxError::Busy`] while it is on its
    /// way from one state to another, [`SandboxError::NotFound`] when it has ended.
    pub(crate) async fn inside(
        self: &Arc<Self>,
        permit: &SandboxPermit,
    ) -> Result<Inside, SandboxError> {
        let (catalog, id) = (EngineCatalog::new(self.clone()), permit.sandbox());
        let route = match catalog.lookup(id) {
            Lookup::Running(route) => route,
            Lookup::Resumable(_) => self.wake(id).await.map_err(|error| match error {
                NotResumed::Gone => SandboxError::NotFound(id.clone()),
                NotResumed::Full(_) | NotResumed::Failed(_) => SandboxError::Busy(id.clone()),
            })?,
            Lookup::Busy => return Err(SandboxError::Busy(id.clone())),
            Lookup::Paused => return Err(SandboxError::Paused(id.clone())),
            Lookup::Failed(_) | Lookup::Unknown => {
                return Err(SandboxError::NotFound(id.clone()));
            }
        };
        Ok(Inside {
            guest: self.guest.clone(),
            door: GuestDoor {
                address: route.address,
                token: Some(route.guest_token.clone()),
                user: None,
            },
            catalog,
            route,
        })
    }
}

impl Inside {
    /// Acts as a user of the sandbox instead of its default user.
    #[must_use]
    pub fn with_user(mut self, user: &str) -> Self {
        self.door = self.door.with_user(user);
        self
    }

    /// Runs a command and listens to it.
    ///
    /// # Errors
    /// See [`Guest::run`].
    pub async fn run(&self, command: GuestCommand) -> Result<GuestProcess, GuestError> {
        let begun = self.guest.run(self.door.clone(), command);
        let process = self.while_it_runs(begun).await?;
        Ok(GuestProcess {
            output: cut(process.output, self.ended(), gone()),
            control: Arc::new(WhileItRuns {
                control: process.control,
                inside: self.clone(),
            }),
        })
    }

    /// Writes a file, making its parents.
    ///
    /// # Errors
    /// See [`Guest::write_file`].
    pub async fn write_file(&self, path: String, contents: GuestBytes) -> Result<(), GuestError> {
        let written = self.guest.write_file(self.door.clone(), path, contents);
        self.while_it_runs(written).await
    }

    /// Reads a file.
    ///
    /// # Errors
    /// See [`Guest::read_file`].
    pub async fn read_file(&self, path: String) -> Result<GuestFile, GuestError> {
        let read = self.guest.read_file(self.door.clone(), path);
        let file = self.while_it_runs(read).await?;
        let broken = std::io::Error::other(gone());
        Ok(GuestFile {
            contents: cut(file.contents, self.ended(), broken),
            ..file
        })
    }

    /// Lists a directory.
    ///
    /// # Errors
    /// See [`Guest::list_dir`].
    pub async fn list_dir(&self, path: String) -> Result<Vec<GuestEntry>, GuestError> {
        let listed = self.guest.list_dir(self.door.clone(), path);
        self.while_it_runs(listed).await
    }

    /// Describes what lies at a path.
    ///
    /// # Errors
    /// See [`Guest::stat`].
    pub async fn stat(&self, path: String) -> Result<GuestEntry, GuestError> {
        let described = self.guest.stat(self.door.clone(), path);
        self.while_it_runs(described).await
    }

    /// Removes what lies at a path.
    ///
    /// # Errors
    /// See [`Guest::remove`].
    pub async fn remove(&self, path: String) -> Result<(), GuestError> {
        let removed = self.guest.remove(self.door.clone(), path);
        self.while_it_runs(removed).await
    }

    fn ended(&self) -> BoxFuture<'static, ()> {
        self.catalog.ended(&self.route)
    }

    async fn while_it_runs<T>(
        &self,
        asked: BoxFuture<'_, Result<T, GuestError>>,
    ) -> Result<T, GuestError> {
        match future::select(asked, self.ended()).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(gone()),
        }
    }
}

/// A command's control that does not wait for what does not run any more.
struct WhileItRuns {
    control: Arc<dyn GuestControl>,
    inside: Inside,
}

impl GuestControl for WhileItRuns {
    fn input(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), GuestError>> {
        Box::pin(self.inside.while_it_runs(self.control.input(bytes)))
    }

    fn close_input(&self) -> BoxFuture<'_, Result<(), GuestError>> {
        Box::pin(self.inside.while_it_runs(self.control.close_input()))
    }

    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), GuestError>> {
        Box::pin(self.inside.while_it_runs(self.control.resize(size)))
    }

    fn kill(&self) -> BoxFuture<'_, Result<(), GuestError>> {
        Box::pin(self.inside.while_it_runs(self.control.kill()))
    }
}

fn gone() -> GuestError {
    GuestError::Unreachable("the sandbox has ended, or was paused".to_owned())
}

/// What comes until `ended`, and then `broken`: a stream that just ended would look whole.
fn cut<T: Send + 'static, E: Send + 'static>(
    stream: BoxStream<'static, Result<T, E>>,
    ended: BoxFuture<'static, ()>,
    broken: E,
) -> BoxStream<'static, Result<T, E>> {
    let state = (stream, ended, Some(broken));
    let cut = stream::unfold(state, async |(mut stream, ended, mut broken)| {
        broken.as_ref()?;
        // What has come is passed on first.
        match future::select(stream.next(), ended).await {
            Either::Left((next, ended)) => Some((next?, (stream, ended, broken))),
            Either::Right(((), _)) => {
                let last = broken.take()?;
                let over: BoxFuture<'static, ()> = Box::pin(future::pending());
                Some((Err(last), (stream, over, None)))
            }
        }
    });
    cut.boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_comes_is_passed_on_and_an_end_in_the_middle_is_an_error() {
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let ended: BoxFuture<'static, ()> = Box::pin(async {
            let _ = ended.await;
        });
        let endless = stream::iter([Ok::<_, &str>(1)]).chain(stream::pending());
        let mut stream = cut(endless.boxed(), ended, "broken");
        assert_eq!(stream.next().await, Some(Ok(1)));
        end.send(()).unwrap();
        assert_eq!(stream.next().await, Some(Err("broken")));
        assert_eq!(stream.next().await, None);
        let whole = stream::iter([Ok::<_, &str>(1)]).boxed();
        let stream = cut(whole, Box::pin(future::pending()), "broken");
        assert_eq!(stream.collect::<Vec<_>>().await, [Ok(1)]);
    }
}
