//! An engine over what tests own.

use std::path::Path;
use std::sync::Arc;

use shoal_core::auth::{ApiKey, Principal};

use super::{FakeDriver, FakeGuest, ManualClock, NoImages};
use crate::{Engine, EngineConfig, EngineParts, SqliteStore};

/// The parts of an engine in this directory, all fakes but the store.
///
/// # Panics
/// When the store cannot be opened.
#[must_use]
#[expect(clippy::expect_used, reason = "of a test")]
pub fn parts(directory: &Path) -> EngineParts {
    let store = SqliteStore::open(&directory.join("shoal.db"));
    EngineParts {
        config: EngineConfig::new(directory),
        store: Arc::new(store.expect("a store")),
        drivers: vec![Arc::new(FakeDriver::new())],
        images: Arc::new(NoImages),
        guest: Arc::new(FakeGuest::default()),
        clock: ManualClock::new(),
    }
}

/// An engine that has recovered, but whose loops do not run.
///
/// # Panics
/// When it cannot be opened.
#[expect(clippy::expect_used, reason = "of a test")]
pub async fn open(parts: EngineParts) -> Engine {
    let engine = Engine::open(parts).await.expect("an engine");
    engine.recover().await.expect("what there is");
    engine
}

/// The keys of an admin and of a user of another team.
///
/// # Panics
/// When there is a key already.
#[expect(clippy::expect_used, reason = "of a test")]
pub async fn admin_and_other(engine: &Engine) -> (String, String) {
    let minted = engine.mint_first_key(|_| Ok(())).await.expect("a store");
    let admin: ApiKey = minted.expect("the first key");
    let known = engine.authenticate(&admin).await.expect("a store");
    let me: Principal = known.expect("a key");
    let slug = "other".parse().expect("a name");
    let made = engine.create_key(&me, &slug, "user", false).await;
    let (other, _) = made.expect("a key");
    (admin.reveal().to_owned(), other.reveal().to_owned())
}
