//! Jupyter messages, version 5: frames and signatures.

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::zmtp::Message;
use crate::random;

/// Protocol version of requests.
const VERSION: &str = "5.3";

/// Delimiter between routing addresses and message parts.
const DELIMITER: &[u8] = b"<IDS|MSG>";

/// A client session with one kernel.
#[derive(Clone)]
pub(super) struct Session {
    id: String,
    key: String,
    mac: Hmac<Sha256>,
    requests: u64,
}

/// A decoded message.
#[derive(Debug)]
pub(super) struct Envelope {
    /// Message type.
    pub(super) kind: String,
    /// Id of the request it belongs to; empty if none.
    pub(super) parent: String,
    /// JSON content.
    pub(super) content: Bytes,
    /// Number of skipped bytes of an oversized message, which has no content.
    pub(super) skipped: u64,
}

#[derive(Serialize)]
struct RequestHeader<'a> {
    msg_id: &'a str,
    session: &'a str,
    username: &'static str,
    date: String,
    msg_type: &'a str,
    version: &'static str,
}

#[derive(Deserialize)]
struct Header {
    msg_type: String,
}

#[derive(Deserialize)]
struct Parent {
    #[serde(default)]
    msg_id: String,
}

impl Session {
    /// A session with a random key.
    pub(super) fn new() -> Self {
        let key = hex::encode(random::bytes::<32>());
        Self {
            id: hex::encode(random::bytes::<16>()),
            mac: mac(&key),
            key,
            requests: 0,
        }
    }

    /// The signing key, for the kernel.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Builds a request. Returns its id, which the kernel repeats as the parent id.
    pub(super) fn request(&mut self, kind: &str, content: &impl Serialize) -> (String, Vec<Bytes>) {
        self.requests += 1;
        let id = format!("{}_{}", self.id, self.requests);
        let header = RequestHeader {
            msg_id: &id,
            session: &self.id,
            username: "shoal",
            date: super::now(),
            msg_type: kind,
            version: VERSION,
        };
        // Requests always serialise.
        let header = serde_json::to_vec(&header).unwrap_or_default();
        let content = serde_json::to_vec(content).unwrap_or_default();
        let frames = self.frames(header, b"{}".to_vec(), content);
        (id, frames)
    }

    /// A signed message.
    pub(super) fn frames(&self, header: Vec<u8>, parent: Vec<u8>, content: Vec<u8>) -> Vec<Bytes> {
        let signed = self.sign([&header, &parent, b"{}", &content]);
        let signature = hex::encode(signed.finalize().into_bytes());
        vec![
            Bytes::from_static(DELIMITER),
            signature.into(),
            header.into(),
            parent.into(),
            Bytes::from_static(b"{}"),
            content.into(),
        ]
    }

    fn sign(&self, parts: [&[u8]; 4]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        for part in parts {
            mac.update(part);
        }
        mac
    }

    /// Verifies and decodes a message. `None` if the signature is wrong or the message is invalid.
    ///
    /// The signature of an oversized message is not verified, because nothing but its presence is
    /// used.
    pub(super) fn open(&self, message: &Message) -> Option<Envelope> {
        let frames = &message.frames;
        let start = frames.iter().position(|frame| frame == DELIMITER)? + 1;
        let parts = frames.get(start..start + 5)?;
        let [signature, header, parent, metadata, content] = parts else {
            return None;
        };
        if message.skipped == 0 {
            let signature = hex::decode(signature).ok()?;
            let mac = self.sign([header, parent, metadata, content]);
            mac.verify_slice(&signature).ok()?;
        }
        let header: Header = serde_json::from_slice(header).ok()?;
        let parent: Option<Parent> = serde_json::from_slice(parent).ok();
        Some(Envelope {
            kind: header.msg_type,
            parent: parent.map(|parent| parent.msg_id).unwrap_or_default(),
            content: content.clone(),
            skipped: message.skipped,
        })
    }
}

fn mac(key: &str) -> Hmac<Sha256> {
    // HMAC accepts keys of any length.
    Hmac::new_from_slice(key.as_bytes()).unwrap_or_else(|_| Hmac::new(&Default::default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(frames: Vec<Bytes>) -> Message {
        Message {
            frames,
            ..Message::default()
        }
    }

    #[test]
    fn only_the_right_key_verifies_a_message() {
        let mut session = Session::new();
        let (id, mut frames) = session.request("execute_request", &json!({"code": "1"}));
        // Like a reply: with an address in front.
        frames.insert(0, Bytes::from_static(b"topic"));
        let envelope = session.open(&message(frames.clone())).unwrap();
        assert_eq!(envelope.kind, "execute_request");
        assert_eq!(envelope.content, r#"{"code":"1"}"#);
        assert_eq!(envelope.parent, "");
        assert!(!id.is_empty());

        assert!(Session::new().open(&message(frames.clone())).is_none());
        frames[6] = Bytes::from_static(b"{}");
        assert!(session.open(&message(frames)).is_none());
    }

    #[test]
    fn ids_are_not_repeated() {
        let mut session = Session::new();
        let (one, _) = session.request("a", &json!({}));
        let (two, _) = session.request("a", &json!({}));
        assert_ne!(one, two);
    }

    #[test]
    fn a_message_with_too_few_frames_is_invalid() {
        let session = Session::new();
        for count in 0..6 {
            let frames = vec![Bytes::from_static(DELIMITER); count];
            assert!(session.open(&message(frames)).is_none());
        }
    }
}
