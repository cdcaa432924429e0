//! Passes: the right to give a daemon in a pod its first settings.
//!
//! A daemon on one machine has its token before it listens. One in a pod has none, and the first client of its port could
//! set a token of its own. So the program that makes pods and
//! the one that claims them share a secret, from which each sandbox has a pass. The pod's environment has a
//! digest of the pass, from which neither pass nor secret can be computed; the first `/init` presents the
//! pass.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Length of a secret in bytes.
pub const SECRET: usize = 32;

/// The Kubernetes Secret that holds the secret, in the namespace of the programs that share it.
pub const SECRET_NAME: &str = "shoal-runtime";

/// The entry of that Secret.
pub const SECRET_KEY: &str = "init-secret";

/// The variable of a pod's environment with the digest of its pass.
pub const DIGEST_VARIABLE: &str = "SHOAL_INIT_DIGEST";

/// The variable of a pod's environment with the account that commands run as when a request names none.
pub const USER_VARIABLE: &str = "SHOAL_DEFAULT_USER";

/// The secret that the programs share which make and claim pods. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct InitSecret([u8; SECRET]);

/// The pass of one sandbox. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct InitPass(String);

/// Recognises the pass of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassDigest([u8; 32]);

impl InitSecret {
    /// A secret of random bytes.
    #[must_use]
    pub fn new(bytes: [u8; SECRET]) -> Self {
        Self(bytes)
    }

    /// The secret of a Kubernetes Secret's entry, unless that has another length.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The pass of the sandbox with this unique id. It stays the same when its pod is replaced.
    #[must_use]
    pub fn pass(&self, sandbox: &str) -> InitPass {
        // A key is as long as a block of the hash; a shorter one ends with zeros (RFC 2104).
        let mut key = [0; 64];
        key[..SECRET].copy_from_slice(&self.0);
        let mut code = Hmac::<Sha256>::new(&key.into());
        code.update(b"first init of sandbox ");
        code.update(sandbox.as_bytes());
        InitPass(hex::encode(code.finalize().into_bytes()))
    }
}

impl InitPass {
    /// The pass as text, to send.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The value that recognises it.
    #[must_use]
    pub fn digest(&self) -> PassDigest {
        PassDigest(Sha256::digest(&self.0).into())
    }
}

impl PassDigest {
    /// Parses 64 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut digest = [0; 32];
        hex::decode_to_slice(text, &mut digest).ok()?;
        Some(Self(digest))
    }

    /// Whether this is the pass. Takes the same time for all of a length.
    #[must_use]
    pub fn recognises(&self, offered: &[u8]) -> bool {
        self.0.ct_eq(&Sha256::digest(offered)).into()
    }
}

impl fmt::Display for PassDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for InitSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InitSecret(…)")
    }
}

impl fmt::Debug for InitPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InitPass(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> InitSecret {
        InitSecret::new([7; SECRET])
    }

    #[test]
    fn a_digest_recognises_its_pass_only() {
        let pass = secret().pass("uid-1");
        let digest = PassDigest::parse(&pass.digest().to_string()).unwrap();
        assert!(digest.recognises(pass.reveal().as_bytes()));
        for other in [
            secret().pass("uid-2").reveal(),
            InitSecret::new([8; SECRET]).pass("uid-1").reveal(),
            digest.to_string().as_str(),
            "",
        ] {
            assert!(!digest.recognises(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_pass_stays_the_same() {
        // Pods that wait since before an update are claimed after it.
        let pass = secret().pass("2f1f8d0e-5c07-4d4e-9a5c-0e2a3f4b5c6d");
        assert_eq!(
            pass.reveal(),
            "1c927f277b9d01c4b794d9470b2a775be833743bec908d8085fc82d8a251b919"
        );
    }

    #[test]
    fn no_other_text_is_a_digest() {
        let text = secret().pass("x").digest().to_string();
        assert!(PassDigest::parse(&text).is_some());
        for wrong in [
            "",
            &text[1..],
            &format!("{text}0"),
            &text.replacen(&text[..1], "g", 1),
            &"é".repeat(32),
        ] {
            assert_eq!(PassDigest::parse(wrong), None, "{wrong}");
        }
        assert_eq!(InitSecret::from_slice(&[0; 31]), None);
        assert!(InitSecret::from_slice(&[0; 32]).is_some());
    }

    #[test]
    fn nothing_secret_is_printed() {
        let secret = secret();
        assert_eq!(
            format!("{:?} {:?}", secret, secret.pass("x")),
            "InitSecret(…) InitPass(…)"
        );
    }
}
