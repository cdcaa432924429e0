//! The template of a session's machine, which may have to be built first.

use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::driver::Isolation;
use shoal_core::id::SandboxId;
use shoal_core::ports::builds::BuiltinError;
use shoal_core::ports::create::{CreateError, SandboxRequest};
use shoal_core::session::SessionRecord;
use shoal_core::session::machine::Nesting;
use shoal_core::template::{TemplateKey, TemplateName};

use super::Service;
use super::external::system_of;
use super::machine::request;

/// The templates of the machines of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTemplates {
    /// The desired one.
    pub template: TemplateKey,
    /// The one in its place while that is not built; none to refuse commands until then.
    pub fallback: Option<TemplateKey>,
    /// The one of privileged machines. Nothing is in its place.
    pub docker: TemplateKey,
}

/// A machine that was made.
pub(super) struct Made {
    pub(super) sandbox: SandboxId,
    pub(super) isolation: Option<Isolation>,
    /// Why it is of the fallback.
    pub(super) note: Option<String>,
}

/// The sentence before the output of the first command on a machine of the fallback.
pub(super) fn notice(note: &str) -> String {
    format!(
        "this machine is not the one that sessions get: {note}. The next machine of the session may be; reset it to get one"
    )
}

impl Service {
    /// Makes the sandbox of a session. If its template is not built yet, begins the build and uses the fallback, so that no
    /// caller waits for minutes.
    pub(super) async fn make(
        &self,
        principal: &Principal,
        record: &SessionRecord,
    ) -> Result<Made, CreateError> {
        let templates = &self.parts.templates;
        let (template, fallback) = match record.machine.nesting() {
            Nesting::None => (&templates.template, templates.fallback.as_ref()),
            Nesting::Privileged | Nesting::Container(_) => (&templates.docker, None),
        };
        let missing = match self.make_of(principal, record, template).await {
            Ok(made) => return Ok(made),
            Err(CreateError::Builtin(BuiltinError::AdminsOnly(name))) => self.build(&name).await,
            Err(error) => error,
        };
        let is_unbuilt = matches!(
            missing,
            CreateError::BeingBuilt { .. }
                | CreateError::NotBuilt { .. }
                | CreateError::Builtin(BuiltinError::NotBuilt(..))
        );
        let Some(fallback) = fallback.filter(|_| is_unbuilt) else {
            return Err(missing);
        };
        let session = &record.id;
        tracing::info!(%session, %fallback, reason = %missing, "a machine of another template is made");
        let made = self.make_of(principal, record, fallback).await?;
        let note = Some(format!(
            "it is of the template '{fallback}', because {missing}"
        ));
        Ok(Made { note, ..made })
    }

    /// Begins the build of a template that the operator has chosen for sessions; any key may trigger it.
    async fn build(&self, name: &TemplateName) -> CreateError {
        let installation = Principal::installation();
        let begun = self.parts.builds.build_builtin(&installation, name, false);
        match begun.await {
            Ok(build) => CreateError::BeingBuilt {
                template: name.clone(),
                build: format!("{}/{}", build.template, build.id),
            },
            Err(error) => error.into(),
        }
    }

    async fn make_of(
        &self,
        principal: &Principal,
        record: &SessionRecord,
        template: &TemplateKey,
    ) -> Result<Made, CreateError> {
        let sandboxes = &self.parts.sandboxes;
        let wanted = request(record, template);
        let created = match sandboxes.create(principal, wanted.clone(), None).await {
            // No sandbox may live as long as the session would keep it.
            Err(CreateError::TimeoutTooLong(limit)) => {
                let timeout = limit.most;
                let wanted = SandboxRequest { timeout, ..wanted };
                sandboxes.create(principal, wanted, None).await?
            }
            created => created?,
        };
        let record = created.record;
        Ok(Made {
            sandbox: record.id.clone(),
            isolation: record.report.as_ref().map(|report| report.isolation),
            note: None,
        })
    }

    /// The name of a machine's system; `None` when it does not report one.
    pub(super) async fn system(
        &self,
        permit: &SandboxPermit,
        note: Option<&str>,
    ) -> Option<String> {
        let client = self.parts.access.open(permit, None).await.ok()?;
        system_of(&*client, note).await
    }
}
