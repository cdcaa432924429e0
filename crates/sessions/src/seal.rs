//! Encryption of secrets at rest.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use shoal_core::ports::NoEntropy;
use shoal_core::ports::sessions::SessionError;
use shoal_core::ports::sessions::secrets::SecretError;
use shoal_core::session::SessionId;
use shoal_core::session::secret::{InvalidSecret, SecretName, SecretValue};
use zeroize::Zeroizing;

/// The first byte of a sealed value. Another form would have another.
const FORM: u8 = 1;

/// How much longer a sealed value is: the form, the nonce and the tag.
pub(crate) const OVERHEAD: usize = 1 + NONCE_LEN + 16;

/// Encrypts the values of secrets. One key is for all sessions of an installation.
#[derive(Clone)]
pub struct SealingKey(LessSafeKey);

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealingKey(…)")
    }
}

impl SealingKey {
    /// The number of bytes of a key.
    pub const BYTES: usize = 32;

    /// The key with these bytes; none when there are more or fewer than [`SealingKey::BYTES`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let key = UnboundKey::new(&AES_256_GCM, bytes).ok()?;
        Some(Self(LessSafeKey::new(key)))
    }

    /// The bytes of a new key.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn generate() -> Result<Zeroizing<[u8; Self::BYTES]>, NoEntropy> {
        let mut bytes = Zeroizing::new([0; Self::BYTES]);
        getrandom::fill(&mut *bytes).map_err(|e| NoEntropy(e.to_string()))?;
        Ok(bytes)
    }

    /// Encrypts the value of a secret. It opens for this session and name only.
    pub(crate) fn seal(
        &self,
        session: &SessionId,
        name: &SecretName,
        value: &SecretValue,
    ) -> Result<Vec<u8>, SessionError> {
        self.seal_as(session, name.as_str(), value)
    }

    /// Encrypts a value. It opens for this session and purpose only.
    pub(crate) fn seal_as(
        &self,
        session: &SessionId,
        name: &str,
        value: &SecretValue,
    ) -> Result<Vec<u8>, SessionError> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(|e| NoEntropy(e.to_string()))?;
        let mut sealed = vec![FORM];
        sealed.extend(nonce);
        let mut text = Zeroizing::new(value.reveal().as_bytes().to_vec());
        let tag = self.0.seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            owner(session, name),
            &mut text,
        );
        // Nothing else is an error of the method.
        let tag = tag.map_err(|_| SecretError::Invalid(InvalidSecret::Long))?;
        sealed.extend_from_slice(&text);
        sealed.extend(tag.as_ref());
        Ok(sealed)
    }

    /// The value of a secret.
    pub(crate) fn open(
        &self,
        session: &SessionId,
        name: &SecretName,
        sealed: &[u8],
    ) -> Option<SecretValue> {
        self.open_as(session, name.as_str(), sealed)
    }

    /// The value; none when it was sealed with another key, or for another session or purpose, or has changed since.
    pub(crate) fn open_as(
        &self,
        session: &SessionId,
        name: &str,
        sealed: &[u8],
    ) -> Option<SecretValue> {
        let (form, rest) = sealed.split_first()?;
        let (nonce, text) = rest.split_at_checked(NONCE_LEN)?;
        if *form != FORM {
            return None;
        }
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = Zeroizing::new(text.to_vec());
        let text = self.0.open_in_place(nonce, owner(session, name), &mut text);
        let text = std::str::from_utf8(text.ok()?).ok()?;
        SecretValue::new(text.to_owned()).ok()
    }
}

/// Binds a value to its owner. Neither part contains the separator.
fn owner(session: &SessionId, name: &str) -> Aad<Vec<u8>> {
    Aad::from(format!("shoal session secret/{session}/{name}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r2_104_a_sealed_value_opens_in_its_place_only() {
        let key = SealingKey::new(&[1; 32]).unwrap();
        let (one, other) = (
            SessionId::from_entropy([1; 16]),
            SessionId::from_entropy([2; 16]),
        );
        let [a, b] = ["A", "B"].map(|name| name.parse::<SecretName>().unwrap());
        let value = SecretValue::new("hunter2".to_owned()).unwrap();
        let sealed = key.seal(&one, &a, &value).unwrap();
        assert_eq!(sealed.len(), "hunter2".len() + OVERHEAD);
        assert!(
            !sealed
                .windows(4)
                .any(|bytes| b"hunter2".windows(4).any(|part| part == bytes))
        );
        assert_eq!(key.open(&one, &a, &sealed), Some(value.clone()));
        assert_ne!(
            key.seal(&one, &a, &value).unwrap(),
            sealed,
            "the nonce is new each time"
        );
        assert_eq!(key.open(&other, &a, &sealed), None);
        assert_eq!(key.open(&one, &b, &sealed), None);
        assert_eq!(
            SealingKey::new(&[2; 32]).unwrap().open(&one, &a, &sealed),
            None
        );
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(key.open(&one, &a, &changed), None, "{at}");
            assert_eq!(key.open(&one, &a, &sealed[..at]), None, "{at}");
        }
        assert!(SealingKey::new(&[1; 31]).is_none());
        assert_eq!(format!("{key:?}"), "SealingKey(…)");
    }
}
