//! Records of templates.

use crate::BoxFuture;
use crate::id::TemplateId;
use crate::template::Template;

use super::StoreError;

/// Keeps the templates.
pub trait TemplateStore: Send + Sync {
    /// Every template.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn templates(&self) -> BoxFuture<'_, Result<Vec<Template>, StoreError>>;

    /// Writes a template, new or changed.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn put_template(&self, template: Template) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes a template. Returns whether it existed.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn delete_template(&self, id: &TemplateId) -> BoxFuture<'_, Result<bool, StoreError>>;
}
