//! Test doubles: a kernel whose other end is held by the test.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::super::budget::Budget;
use super::super::kernel::{Kernel, Launcher};
use super::super::wire::Session;
use super::super::zmtp::{Role, Socket};
use crate::config::Config;
use crate::process::InheritedLimits;
use crate::process::Status;
use crate::settings::Settings;
use crate::user::Users;

/// A launcher that starts nothing: its user does not exist.
pub(in crate::interpreter) fn launcher() -> Launcher {
    Launcher {
        children: Arc::default(),
        users: Arc::new(Users::new(Path::new("/no/such"))),
        settings: Arc::new(Settings::new(&Config::default())),
        time: Arc::default(),
        oom_killer: Arc::default(),
        output: Budget::default(),
        inherited_limits: InheritedLimits {
            descriptors: None,
            niced: false,
        },
        directory: "/no/such".into(),
        user: "nobody-at-all".to_owned(),
    }
}

/// The other end of a kernel's connections.
pub(in crate::interpreter) struct FakeKernel {
    session: Session,
    pub(in crate::interpreter) shell: Socket,
    pub(in crate::interpreter) iopub: Socket,
    /// Reports the exit of its process.
    pub(in crate::interpreter) ends: oneshot::Sender<Status>,
}

impl FakeKernel {
    /// A message with this parent.
    fn frames(&self, kind: &str, parent: &str, content: &Value) -> Vec<Bytes> {
        let header = json!({"msg_type": kind}).to_string();
        let parent = json!({"msg_id": parent}).to_string();
        let content = content.to_string();
        let session = &self.session;
        session.frames(header.into(), parent.into(), content.into())
    }

    pub(in crate::interpreter) async fn says(&mut self, kind: &str, parent: &str, content: Value) {
        let frames = self.frames(kind, parent, &content);
        self.iopub.send(&frames).await.unwrap();
    }

    pub(in crate::interpreter) async fn idles(&mut self, parent: &str) {
        self.says("status", parent, json!({"execution_state": "idle"}))
            .await;
    }

    pub(in crate::interpreter) async fn replies(&mut self, parent: &str, content: Value) {
        let frames = self.frames("execute_reply", parent, &content);
        self.shell.send(&frames).await.unwrap();
    }

    /// The id of the next request.
    pub(in crate::interpreter) async fn asked(&mut self) -> String {
        self.request().await.0
    }

    /// The id and code of the next request, which must execute code.
    pub(in crate::interpreter) async fn asked_for_code(&mut self) -> (String, String) {
        let (id, content) = self.request().await;
        (id, content["code"].as_str().unwrap().to_owned())
    }

    async fn request(&mut self) -> (String, Value) {
        let message = self.shell.next().await.unwrap();
        let header: Value = serde_json::from_slice(&message.frames[2]).unwrap();
        let content = serde_json::from_slice(&message.frames[5]).unwrap();
        (header["msg_id"].as_str().unwrap().to_owned(), content)
    }
}

async fn pair() -> (Socket, Socket) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepted = async {
        let (stream, _) = listener.accept().await.unwrap();
        Socket::over(stream, Role::Dealer).await.unwrap()
    };
    let (ours, theirs) = tokio::join!(Socket::connect(port, Role::Dealer), accepted);
    (ours.unwrap(), theirs)
}

/// A kernel and its other end.
pub(in crate::interpreter) async fn kernel() -> (Kernel, FakeKernel) {
    let session = Session::new();
    let ((shell, their_shell), (iopub, their_heard)) = (pair().await, pair().await);
    let (control, _) = pair().await;
    let (kernel, ends) = Kernel::of_test(session.clone(), [shell, iopub, control]);
    let fake = FakeKernel {
        session,
        shell: their_shell,
        iopub: their_heard,
        ends,
    };
    (kernel, fake)
}
