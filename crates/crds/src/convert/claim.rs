use serde::{Deserialize, Serialize};

use super::ConversionError;
use super::kept::{put, remove, take, whole};
use crate::names::SHADOW_POOL;
use crate::names::annotation::{ALPHA_CLAIM, BETA_CLAIM};
use crate::parts::{NameRef, SandboxClaimStatus, VolumeClaimTemplate};
use crate::v1alpha1::{DEFAULT_POOL, NO_POOL};
use crate::{v1alpha1, v1beta1};

/// The fields that v1alpha1 lacks, and the values that it has in place of the pool.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BetaOnly {
    warm_pool_ref: NameRef,
    /// While these are unchanged, `warm_pool_ref` is restored.
    shown_as: Pair,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    volume_claim_templates: Vec<VolumeClaimTemplate>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Pair {
    template: String,
    warmpool: Option<String>,
}

impl Pair {
    fn of(spec: &v1alpha1::SandboxClaimSpec) -> Self {
        Self {
            template: spec.sandbox_template_ref.name.clone(),
            warmpool: spec.warmpool.clone(),
        }
    }

    /// The pool that it names, if it does.
    fn specific(&self) -> Option<&str> {
        self.warmpool
            .as_deref()
            .filter(|pool| !matches!(*pool, "" | DEFAULT_POOL | NO_POOL))
    }
}

/// The origin of a claim's sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requested {
    /// A pool, and the pool's template.
    Pool(String),
    /// A template, and one pool of that template, as a v1alpha1 claim may say.
    TemplateAndPool {
        /// The template.
        template: String,
        /// The pool.
        pool: String,
    },
    /// A template, and any of its pools.
    AnyPool {
        /// The template.
        template: String,
    },
    /// A template, and no pool.
    NoPool {
        /// The template.
        template: String,
    },
}

/// The origin of the claim's sandbox, by the version that the claim was written in.
#[must_use]
pub fn requested(claim: &v1beta1::SandboxClaim) -> Requested {
    let current = &claim.spec.warm_pool_ref.name;
    let mut metadata = claim.metadata.clone();
    let Some(original) = take::<v1alpha1::SandboxClaim>(&mut metadata, ALPHA_CLAIM) else {
        return Requested::Pool(current.clone());
    };
    let pair = pair_of(current, Some(&original), claim.status.as_ref());
    match (pair.specific(), pair.warmpool.as_deref()) {
        (Some(pool), _) => Requested::TemplateAndPool {
            template: pair.template.clone(),
            pool: pool.to_owned(),
        },
        (None, Some(NO_POOL)) => Requested::NoPool {
            template: pair.template,
        },
        (None, _) => Requested::AnyPool {
            template: pair.template,
        },
    }
}

/// A pool member's name without its random suffix: the pool.
fn stem(sandbox: &str) -> Option<&str> {
    sandbox
        .rsplit_once('-')
        .map(|(stem, _)| stem)
        .filter(|stem| !stem.is_empty())
}

fn sandbox_of(status: Option<&SandboxClaimStatus>) -> Option<&str> {
    status
        .map(|status| status.sandbox.name.as_str())
        .filter(|name| !name.is_empty())
}

/// The pool of a v1alpha1 claim.
fn pool_of(pair: &Pair, claim: Option<&str>, status: Option<&SandboxClaimStatus>) -> String {
    if let Some(pool) = pair.specific() {
        return pool.to_owned();
    }
    sandbox_of(status)
        .filter(|sandbox| Some(*sandbox) != claim)
        .and_then(stem)
        .map_or_else(|| format!("{SHADOW_POOL}{}", pair.template), str::to_owned)
}

/// Template and pool of a v1beta1 claim in v1alpha1.
fn pair_of(
    pool: &str,
    original: Option<&v1alpha1::SandboxClaim>,
    status: Option<&SandboxClaimStatus>,
) -> Pair {
    let Some(original) = original else {
        return match pool.strip_prefix(SHADOW_POOL) {
            Some(template) => Pair {
                template: template.to_owned(),
                warmpool: Some(DEFAULT_POOL.to_owned()),
            },
            None => Pair {
                template: pool.to_owned(),
                warmpool: Some(pool.to_owned()),
            },
        };
    };
    let pair = Pair::of(&original.spec);
    let expected = pair.specific().unwrap_or(&pair.template);
    let sandbox = sandbox_of(status);
    let same = pool == expected
        || pool.strip_prefix(SHADOW_POOL) == Some(expected)
        || sandbox == Some(pool)
        || sandbox.and_then(stem) == Some(pool);
    if same {
        pair
    } else {
        Pair {
            warmpool: Some(pool.to_owned()),
            ..pair
        }
    }
}

/// Converts to v1beta1. A claim that names no pool gets the pool of its sandbox, or one that stands for
/// its template.
///
/// # Errors
/// When the object cannot be written as JSON.
pub fn to_v1beta1(
    mut object: v1alpha1::SandboxClaim,
) -> Result<v1beta1::SandboxClaim, ConversionError> {
    let beta_only: Option<BetaOnly> = take(&mut object.metadata, BETA_CLAIM);
    let original = whole(&object, ALPHA_CLAIM)?;
    let pair = Pair::of(&object.spec);
    let mut pool = pool_of(
        &pair,
        object.metadata.name.as_deref(),
        object.status.as_ref(),
    );
    let mut volume_claim_templates = Vec::new();
    if let Some(kept) = beta_only {
        if kept.shown_as == pair {
            pool = kept.warm_pool_ref.name;
        }
        volume_claim_templates = kept.volume_claim_templates;
    }
    put(&mut object.metadata, ALPHA_CLAIM, original);
    let spec = object.spec;
    Ok(v1beta1::SandboxClaim {
        metadata: object.metadata,
        spec: v1beta1::SandboxClaimSpec {
            warm_pool_ref: NameRef { name: pool },
            lifecycle: spec.lifecycle,
            additional_pod_metadata: spec.additional_pod_metadata,
            env: spec.env,
            volume_claim_templates,
        },
        status: object.status,
    })
}

/// Converts to v1alpha1.
///
/// # Errors
/// When a part cannot be written as JSON.
pub fn to_v1alpha1(
    mut object: v1beta1::SandboxClaim,
) -> Result<v1alpha1::SandboxClaim, ConversionError> {
    let original: Option<v1alpha1::SandboxClaim> = take(&mut object.metadata, ALPHA_CLAIM);
    remove(&mut object.metadata, BETA_CLAIM);
    let spec = object.spec;
    let status = object.status.as_ref();
    let pair = pair_of(&spec.warm_pool_ref.name, original.as_ref(), status);
    let again = pool_of(&pair, object.metadata.name.as_deref(), status);
    if again != spec.warm_pool_ref.name || !spec.volume_claim_templates.is_empty() {
        let kept = BetaOnly {
            warm_pool_ref: spec.warm_pool_ref,
            shown_as: pair.clone(),
            volume_claim_templates: spec.volume_claim_templates,
        };
        let kept = serde_json::to_string(&kept).map_err(|source| ConversionError::Invalid {
            kind: "SandboxClaim",
            source,
        })?;
        put(&mut object.metadata, BETA_CLAIM, kept);
    }
    Ok(v1alpha1::SandboxClaim {
        metadata: object.metadata,
        spec: v1alpha1::SandboxClaimSpec {
            sandbox_template_ref: NameRef {
                name: pair.template,
            },
            warmpool: pair.warmpool,
            lifecycle: spec.lifecycle,
            additional_pod_metadata: spec.additional_pod_metadata,
            env: spec.env,
        },
        status: object.status,
    })
}
