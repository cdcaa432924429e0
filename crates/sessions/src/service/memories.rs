//! Memories: texts that no machine holds.

use shoal_core::BoxFuture;
use shoal_core::auth::Principal;
use shoal_core::ports::sessions::SessionError;
use shoal_core::ports::sessions::memories::{MemoryError, SessionMemories};
use shoal_core::session::memory::{MEMORIES_MAX, Memory, MemoryEntry, MemoryName, TEXT_MAX};

use super::SessionService;

fn parsed(name: &str) -> Result<MemoryName, SessionError> {
    Ok(name.parse().map_err(MemoryError::Name)?)
}

impl SessionMemories for SessionService {
    fn list<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Vec<MemoryEntry>, SessionError>> {
        Box::pin(async move {
            let id = self.0.find(principal, id)?.record().id;
            Ok(self.0.parts.memories.session_memories(&id).await?)
        })
    }

    fn get<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Memory, SessionError>> {
        Box::pin(async move {
            let id = self.0.find(principal, id)?.record().id;
            let name = parsed(name)?;
            let found = self.0.parts.memories.session_memory(&id, &name).await?;
            found.ok_or_else(|| MemoryError::NotFound(name).into())
        })
    }

    fn put<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
        text: String,
    ) -> BoxFuture<'a, Result<Memory, SessionError>> {
        Box::pin(async move {
            let live = self.0.find(principal, id)?;
            let name = parsed(name)?;
            if text.len() > TEXT_MAX {
                return Err(MemoryError::Long.into());
            }
            let memory = Memory {
                name,
                text,
                updated_at: self.0.now(),
            };
            if live.is_deleting() {
                return Err(SessionError::Ending(live.record().id));
            }
            let (id, store) = (live.record().id, &self.0.parts.memories);
            let put = store.put_session_memory(&id, memory.clone(), MEMORIES_MAX);
            if put.await? {
                return Ok(memory);
            }
            Err(MemoryError::TooMany(MEMORIES_MAX).into())
        })
    }

    fn delete<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(async move {
            let id = self.0.find(principal, id)?.record().id;
            let name = parsed(name)?;
            let memories = &self.0.parts.memories;
            if memories.delete_session_memory(&id, &name).await? {
                return Ok(());
            }
            Err(MemoryError::NotFound(name).into())
        })
    }
}
