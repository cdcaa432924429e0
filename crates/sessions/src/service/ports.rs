//! The port, over the service.

use shoal_core::BoxFuture;
use shoal_core::auth::Principal;
use shoal_core::ports::sessions::events::SessionSeenStream;
use shoal_core::ports::sessions::{
    Attached, ExecStream, NewSession, Reset, SessionChange, SessionError, SessionView, Sessions,
};
use shoal_core::session::WindowName;

use super::SessionService;

impl Sessions for SessionService {
    fn create<'a>(
        &'a self,
        principal: &'a Principal,
        new: NewSession,
    ) -> BoxFuture<'a, Result<SessionView, SessionError>> {
        Box::pin(self.0.create(principal, new))
    }

    fn list<'a>(
        &'a self,
        principal: &'a Principal,
    ) -> BoxFuture<'a, Result<Vec<SessionView>, SessionError>> {
        Box::pin(async { Ok(self.0.list(principal)) })
    }

    fn get<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
    ) -> BoxFuture<'a, Result<SessionView, SessionError>> {
        Box::pin(async { Ok(self.0.find(principal, id)?.view()) })
    }

    fn change<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        change: SessionChange,
    ) -> BoxFuture<'a, Result<SessionView, SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            self.0.change(&live, change).await
        })
    }

    fn delete<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
    ) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            self.0.delete(&live).await
        })
    }

    fn exec<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        window: &'a WindowName,
        command: &'a str,
    ) -> BoxFuture<'a, Result<ExecStream, SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            self.0.exec(&live, window, command).await
        })
    }

    fn cancel<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        window: &'a WindowName,
    ) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            let open = live.window(window);
            let open = open.ok_or_else(|| SessionError::NoWindow(window.clone()))?;
            open.cancel().await;
            Ok(())
        })
    }

    fn attach<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        window: &'a WindowName,
        since: u64,
    ) -> BoxFuture<'a, Result<Attached, SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            Ok(self.0.window(&live, window).await?.attach(since))
        })
    }

    fn reset<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        token: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Reset, SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            self.0.reset(&live, token).await
        })
    }

    fn follow(&self, principal: &Principal, id: &str) -> Result<SessionSeenStream, SessionError> {
        self.0.follow(principal, id)
    }
}
