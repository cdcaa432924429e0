//! Deletes a template with its builds.

use shoal_core::auth::Principal;
use shoal_core::template::TemplateRef;

use super::{TemplateError, Templates, Users};

impl Templates {
    /// Deletes a template of the caller's team. An admin may delete a builtin one too. A reference
    /// with a tag deletes only that tag.
    ///
    /// # Errors
    /// [`TemplateError::InUse`] while sandboxes use the template, and [`TemplateError::KeptTag`] for
    /// a tag that a template cannot be without.
    pub(crate) async fn delete(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<(), TemplateError> {
        if let Some(tag) = &reference.tag {
            return self.remove_tag(principal, reference, tag).await;
        }
        let changing = self.parts.build_records.changing.lock().await;
        let Some(template) = self.find(principal, reference) else {
            let missing = || TemplateError::NotFound(reference.to_string());
            // A template without a successful build consists of its builds.
            let pending = self.pending_named(principal, reference);
            let pending = pending.filter(|build| build.team == principal.team);
            let id = pending.ok_or_else(missing)?.template.clone();
            self.parts.build_records.forget_all(&id).await?;
            return Ok(());
        };
        match template.team {
            Some(team) if team != principal.team => {
                return Err(TemplateError::NotFound(reference.to_string()));
            }
            None if !principal.admin => return Err(TemplateError::Builtin(template.id.clone())),
            _ => {}
        }
        let records = self.parts.sandboxes.records();
        let (own, others): (Vec<_>, Vec<_>) = records
            .iter()
            .filter(|record| record.spec.template == template.id)
            .partition(|record| record.team == principal.team);
        if own.len() + others.len() > 0 {
            let users = Users {
                own: own.iter().map(|record| record.id.clone()).collect(),
                others: others.len(),
            };
            return Err(TemplateError::InUse(template.id.clone(), users));
        }
        self.parts.store.delete_template(&template.id).await?;
        self.all.write().retain(|known| known.id != template.id);
        let dropped = self.parts.build_records.forget_all(&template.id).await?;
        drop(changing);
        self.parts.build_records.release(dropped).await;
        Ok(())
    }
}
