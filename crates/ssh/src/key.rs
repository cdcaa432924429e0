//! Private keys.

use russh::keys::{Algorithm, PrivateKey, decode_secret_key};
use shoal_core::ports::external::ExternalError;
use shoal_core::session::secret::SecretValue;

/// Reads a private key.
///
/// # Errors
/// When it has a passphrase, is of another kind than Ed25519 and ECDSA, or is no key.
pub(crate) fn read(text: &SecretValue) -> Result<PrivateKey, ExternalError> {
    let text = text.reveal().trim();
    // The forms that say so before the key.
    let says_so = text.lines().any(|line| {
        let line = line.trim_end();
        line == "-----BEGIN ENCRYPTED PRIVATE KEY-----"
            || line == "Proc-Type: 4,ENCRYPTED"
            || (line.starts_with("Encryption: ") && line != "Encryption: none")
    });
    if says_so {
        return Err(ExternalError::EncryptedKey);
    }
    let key = match decode_secret_key(text, None) {
        Ok(key) if key.is_encrypted() => return Err(ExternalError::EncryptedKey),
        Ok(key) => key,
        Err(russh::keys::Error::KeyIsEncrypted) => return Err(ExternalError::EncryptedKey),
        Err(russh::keys::Error::UnsupportedKeyType {
            key_type_string, ..
        }) => return Err(ExternalError::UnsupportedKey(key_type_string)),
        // The library's error might quote the key.
        Err(_) => return Err(ExternalError::UnreadableKey),
    };
    match key.algorithm() {
        Algorithm::Ed25519 | Algorithm::Ecdsa { .. } => Ok(key),
        other => Err(ExternalError::UnsupportedKey(other.to_string())),
    }
}
