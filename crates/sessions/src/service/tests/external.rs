//! Sessions with an external machine, whose commands run on this machine.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use shoal_core::BoxFuture;
use shoal_core::ports::external::{
    ExternalClient, ExternalError, ExternalMachine, ExternalMachines, Opened,
};
use shoal_core::ports::inside::home::HomeFiles;
use shoal_core::ports::inside::{
    ByteStream, Code, CodeStream, DirEntry, FileContents, InsideError, RunningCommand,
    SandboxClient, SandboxCommand,
};
use shoal_core::ports::sessions::files::{OnlyIf, SessionFiles, WriteFile};
use shoal_core::ports::sessions::preview::{
    Forwarded, NotForwarded, PortForward, Preview, Previews,
};
use shoal_core::ports::sessions::secrets::SessionSecrets;
use shoal_core::session::machine::{HostKey, SshAddress};
use shoal_core::session::secret::SecretValue;

use super::*;
use crate::local::Local;

/// The private key of the tests.
const KEY: &str = "private-key-7f3a";

/// External machines that are all this one.
#[derive(Default)]
pub(super) struct Accounts {
    local: Local,
    opened: AtomicUsize,
    /// The last request, and its client.
    last: Mutex<Option<(ExternalMachine, Arc<Account>)>>,
    refusal: Mutex<Option<ExternalError>>,
}

struct Account {
    local: Local,
    open: AtomicBool,
    closed: AtomicBool,
}

impl ExternalMachines for Accounts {
    fn check(&self, _: &SshAddress, key: &SecretValue) -> Result<(), ExternalError> {
        match key.reveal() {
            KEY => Ok(()),
            _ => Err(ExternalError::UnreadableKey),
        }
    }

    fn open(&self, machine: ExternalMachine) -> BoxFuture<'_, Result<Opened, ExternalError>> {
        Box::pin(async move {
            if let Some(refusal) = self.refusal.lock().take() {
                return Err(refusal);
            }
            self.opened.fetch_add(1, Ordering::AcqRel);
            let client = Arc::new(Account {
                local: self.local.clone(),
                open: AtomicBool::new(true),
                closed: AtomicBool::new(false),
            });
            *self.last.lock() = Some((machine, client.clone()));
            let host_key = HostKey {
                key: "ssh-ed25519 AAAA".to_owned(),
                fingerprint: "SHA256:x".to_owned(),
            };
            Ok(Opened { client, host_key })
        })
    }
}

impl ExternalClient for Account {
    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.open.store(false, Ordering::Release);
        self.closed.store(true, Ordering::Release);
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Account")
    }
}

impl PortForward for Account {
    fn open(&self, _: u16) -> BoxFuture<'_, Result<Forwarded, NotForwarded>> {
        Box::pin(async { Err(NotForwarded::PortClosed) })
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

impl SandboxClient for Account {
    fn run(&self, command: SandboxCommand) -> BoxFuture<'_, Result<RunningCommand, InsideError>> {
        self.local.run(command)
    }

    fn write_file(&self, at: String, of: ByteStream) -> BoxFuture<'_, Result<(), InsideError>> {
        self.local.write_file(at, of)
    }

    fn read_file(&self, path: String) -> BoxFuture<'_, Result<FileContents, InsideError>> {
        self.local.read_file(path)
    }

    fn list_dir(&self, path: String) -> BoxFuture<'_, Result<Vec<DirEntry>, InsideError>> {
        self.local.list_dir(path)
    }

    fn stat(&self, path: String) -> BoxFuture<'_, Result<DirEntry, InsideError>> {
        self.local.stat(path)
    }

    fn remove(&self, path: String) -> BoxFuture<'_, Result<(), InsideError>> {
        self.local.remove(path)
    }

    fn run_code(&self, code: Code) -> BoxFuture<'_, Result<CodeStream, InsideError>> {
        self.local.run_code(code)
    }

    fn home(&self, directory: &str) -> Arc<dyn HomeFiles> {
        self.local.home(directory)
    }
}

impl Accounts {
    fn opened(&self) -> usize {
        self.opened.load(Ordering::Acquire)
    }

    fn last(&self) -> (ExternalMachine, Arc<Account>) {
        self.last.lock().clone().unwrap()
    }
}

fn external(key: &str) -> NewSession {
    NewSession {
        machine: MachineParameters {
            ssh_connection: Some("me@example.com:22".to_owned()),
            ssh_private_key: true,
            ..MachineParameters::default()
        },
        ssh_private_key: Some(SecretValue::new(key.to_owned()).unwrap()),
        ..NewSession::default()
    }
}

impl Fixture {
    async fn external(&self) -> String {
        let made = self.service.create(&self.principal, external(KEY)).await;
        made.unwrap().record.id.to_string()
    }

    async fn leave(&self, session: &str) {
        let asked = self.service.reset(&self.principal, session, None).await;
        let Ok(Reset::Asked(question)) = asked else {
            panic!("no question");
        };
        let token = Some(question.token.as_str());
        let done = self.service.reset(&self.principal, session, token).await;
        assert_eq!(done.unwrap(), Reset::Done(true));
    }
}

#[tokio::test]
async fn r2_093_commands_of_a_session_run_on_its_external_machine() {
    let fixture = Fixture::new().await;
    let session = fixture.external().await;
    let accounts = fixture.accounts.clone();
    assert_eq!(
        accounts.opened(),
        0,
        "nothing is connected before the first command"
    );
    assert_eq!(fixture.run(&session, "x=1; echo here").await.0, "here\n");
    assert_eq!(fixture.run(&session, "echo $x").await.0, "1\n");
    let (asked, account) = accounts.last();
    assert_eq!((accounts.opened(), asked.host_key), (1, None));
    assert_eq!(asked.key.reveal(), KEY);
    assert!(fixture.machines.alive().is_empty(), "no sandbox is made");
    let record = fixture.view(&session).await.record;
    assert_eq!(record.system.as_deref(), Some("Ubuntu 24.04"));
    let stored = serde_json::to_string(&record).unwrap();
    assert!(!stored.contains(KEY), "R2-094");
    // Its time ends as that of a sandbox.
    fixture.ends(&session, IDLE).await;
    assert!(account.closed.load(Ordering::Acquire));
    assert_eq!(fixture.run(&session, "echo -$x-").await.0, "--\n");
    let (asked, _) = accounts.last();
    assert_eq!(asked.host_key.unwrap().fingerprint, "SHA256:x");
}

#[tokio::test]
async fn r2_094_r2_098_what_cannot_work_is_refused_before_anything_is_stored() {
    let fixture = Fixture::new().await;
    let refused = fixture
        .service
        .create(&fixture.principal, external("other"))
        .await;
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("`ssh_private_key`")
    );
    let wakes = NewSession {
        wake_on_request: true,
        ..external(KEY)
    };
    let refused = fixture.service.create(&fixture.principal, wakes).await;
    let told = refused.unwrap_err().to_string();
    assert!(
        told.contains("`wakeOnRequest`") && told.contains("`ssh_connection`"),
        "{told}"
    );
    let all = Sessions::list(&fixture.service, &fixture.principal).await;
    assert!(all.unwrap().is_empty());
    let session = fixture.external().await;
    let wakes = SessionChange {
        wake_on_request: Some(true),
        ..SessionChange::default()
    };
    let refused = Sessions::change(&fixture.service, &fixture.principal, &session, wakes).await;
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("`wakeOnRequest`"), "{told}");
}

#[tokio::test]
async fn a_lost_connection_is_made_again_for_the_next_command() {
    let fixture = Fixture::new().await;
    let session = fixture.external().await;
    fixture.run(&session, "true").await;
    let (_, account) = fixture.accounts.last();
    account.open.store(false, Ordering::Release);
    let refusal = ExternalError::Refused("me@example.com:22".parse().unwrap());
    *fixture.accounts.refusal.lock() = Some(refusal.clone());
    let window = WindowName::default();
    let refused = fixture
        .service
        .exec(&fixture.principal, &session, &window, "true")
        .await;
    let told = refused.err().unwrap();
    assert!(matches!(told, SessionError::Inside(InsideError::External(error)) if error == refusal));
    assert_eq!(fixture.run(&session, "echo again").await.0, "again\n");
    assert_eq!(fixture.accounts.opened(), 2);
}

#[tokio::test]
async fn files_of_an_external_machine_are_no_template_s_and_stay_known() {
    let fixture = Fixture::new().await;
    let session = fixture.external().await;
    let (service, principal) = (&fixture.service, &fixture.principal);
    let path = |text: &str| text.parse().unwrap();
    let home = &fixture.accounts.local.home;
    home.write(&path("theirs.txt"), b"theirs");
    let mine = WriteFile {
        path: path("theirs.txt"),
        contents: "mine".into(),
        executable: None,
        only_if: OnlyIf::Always,
    };
    SessionFiles::write(service, principal, &session, mine)
        .await
        .unwrap();
    fixture.run(&session, "true").await;
    let listed = || async {
        let files = SessionFiles::list(service, principal, &session, None)
            .await
            .unwrap();
        files
            .iter()
            .map(|file| file.path.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        listed().await,
        ["theirs.sandbox-1.txt", "theirs.txt"],
        "both are kept"
    );
    fixture.leave(&session).await;
    // A file that was removed while the machine was disconnected is removed, because it was known.
    home.remove(&path("theirs.sandbox-1.txt"));
    fixture.run(&session, "true").await;
    assert_eq!(listed().await, ["theirs.txt"]);
}

#[tokio::test]
async fn r2_023_a_secret_is_active_until_the_session_leaves_its_external_machine() {
    let fixture = Fixture::new().await;
    let session = fixture.external().await;
    let (service, principal) = (&fixture.service, &fixture.principal);
    let value = SecretValue::new("hunter22".to_owned()).unwrap();
    SessionSecrets::set(service, principal, &session, "TOKEN", value)
        .await
        .unwrap();
    fixture.run(&session, "true").await;
    SessionSecrets::activate(service, principal, &session, "TOKEN")
        .await
        .unwrap();
    assert_eq!(fixture.run(&session, "echo ${#TOKEN}").await.0, "8\n");
    fixture.leave(&session).await;
    assert_eq!(fixture.run(&session, "echo ${#TOKEN}").await.0, "0\n");
}

#[tokio::test]
async fn r2_061_the_preview_of_an_external_machine_leads_through_its_connection() {
    let fixture = Fixture::new().await;
    let session = fixture.external().await;
    let hash = preview::hash_of(&fixture.view(&session).await);
    let find = || fixture.service.find(&hash).unwrap();
    assert!(find().machine.is_none() && find().forwarding.is_none());
    fixture.run(&session, "true").await;
    let (first, again) = (find(), find());
    assert_eq!(first.machine, fixture.view(&session).await.record.sandbox);
    let execution = |found: &Preview| found.forwarding.as_ref().map(|one| one.execution);
    assert!(execution(&first).is_some());
    assert_eq!(execution(&first), execution(&again), "connections are kept");
    fixture.leave(&session).await;
    assert!(find().machine.is_none() && find().forwarding.is_none());
}
