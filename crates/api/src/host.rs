//! The server's name, as a client requested it.

use http::header::HOST;
use http::{HeaderMap, Uri};

/// The host of a request, with its port if given. HTTP/2 has it in the URI.
pub(crate) fn host_of<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    named.or_else(|| Some(uri.authority()?.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_in_a_header_or_in_the_address() {
        let (mut headers, none) = (HeaderMap::new(), Uri::from_static("/x"));
        assert_eq!(host_of(&headers, &none), None);
        let address = Uri::from_static("https://a.test:8443/x");
        assert_eq!(host_of(&headers, &address), Some("a.test:8443"));
        headers.insert(HOST, "b.test".parse().unwrap());
        assert_eq!(host_of(&headers, &address), Some("b.test"));
    }
}
