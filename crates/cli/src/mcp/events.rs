//! Server-sent events: the data of each, out of the bytes of a stream.

use bytes::Bytes;

/// Splits a stream into events.
#[derive(Debug, Default)]
pub(super) struct Events {
    waiting: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

impl Events {
    /// Takes bytes, and returns the data of the events that they complete. Events without data are left out.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<Bytes> {
        self.waiting.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.waiting.drain(..=end).collect();
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            events.extend(self.line(line.strip_suffix(b"\r").unwrap_or(line)));
        }
        events
    }

    fn line(&mut self, line: &[u8]) -> Option<Bytes> {
        if line.is_empty() {
            self.has_data = false;
            let data = std::mem::take(&mut self.data);
            return (!data.is_empty()).then(|| data.into());
        }
        // Other fields are for reconnecting, and comments keep the connection open.
        let data = line.strip_prefix(b"data:")?;
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data
            .extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_wherever_the_bytes_end() {
        let stream = b"id: 0\nretry: 3000\ndata:\n\n: comment\n\ndata: {\"a\":1}\n\ndata:b\r\ndata:c\r\n\r\ndata: rest";
        for size in 1..stream.len() {
            let mut events = Events::default();
            let found: Vec<Bytes> = stream
                .chunks(size)
                .flat_map(|part| events.take(part))
                .collect();
            assert_eq!(found, ["{\"a\":1}", "b\nc"], "pieces of {size}");
        }
    }
}
