//! A backend without sessions.

use bytes::Bytes;

use super::events::SessionSeenStream;
use super::files::{SessionFile, SessionFiles, SyncView, WriteFile};
use super::{
    Attached, ExecStream, NewSession, Reset, SessionChange, SessionError, SessionView, Sessions,
};
use crate::BoxFuture;
use crate::auth::Principal;
use crate::ports::NotServed;
use crate::session::WindowName;
use crate::session::path::SessionPath;

/// The sessions of a backend that has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSessions;

impl NoSessions {
    pub(super) fn refused<T>() -> Result<T, SessionError> {
        Err(SessionError::NotServed(NotServed {
            what: "sessions",
            instead: "ask the replica with kubernetes.sessions=true, if the cluster has one",
        }))
    }
}

impl Sessions for NoSessions {
    fn create<'a>(
        &'a self,
        _: &'a Principal,
        _: NewSession,
    ) -> BoxFuture<'a, Result<SessionView, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn list<'a>(
        &'a self,
        _: &'a Principal,
    ) -> BoxFuture<'a, Result<Vec<SessionView>, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn get<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
    ) -> BoxFuture<'a, Result<SessionView, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn change<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: SessionChange,
    ) -> BoxFuture<'a, Result<SessionView, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn delete<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
    ) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn exec<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: &'a WindowName,
        _: &'a str,
    ) -> BoxFuture<'a, Result<ExecStream, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn cancel<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: &'a WindowName,
    ) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn attach<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: &'a WindowName,
        _: u64,
    ) -> BoxFuture<'a, Result<Attached, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn reset<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Reset, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn follow(&self, _: &Principal, _: &str) -> Result<SessionSeenStream, SessionError> {
        Self::refused()
    }
}

impl SessionFiles for NoSessions {
    fn list<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: Option<&'a SessionPath>,
    ) -> BoxFuture<'a, Result<Vec<SessionFile>, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn read<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: &'a SessionPath,
    ) -> BoxFuture<'a, Result<(SessionFile, Bytes), SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn write<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: WriteFile,
    ) -> BoxFuture<'a, Result<SessionFile, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn remove<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: &'a SessionPath,
    ) -> BoxFuture<'a, Result<usize, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn rename<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: &'a SessionPath,
        _: &'a SessionPath,
    ) -> BoxFuture<'a, Result<usize, SessionError>> {
        Box::pin(async { Self::refused() })
    }

    fn sync<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
    ) -> BoxFuture<'a, Result<SyncView, SessionError>> {
        Box::pin(async { Self::refused() })
    }
}
