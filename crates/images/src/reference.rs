//! The location of an image, parsed from its name.

use std::net::IpAddr;

use oci_spec::distribution;
use shoal_core::image::ImageName;

use super::digest::Digest;
use super::fault::Fault;

/// The host that serves `docker.io`.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");

/// An image in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Host, and port if one was given.
    pub(crate) registry: String,
    /// The repository there.
    pub(crate) repository: String,
    /// The tag, used when there is no digest.
    tag: String,
    /// The expected digest.
    pub(crate) digest: Option<Digest>,
}

impl Reference {
    /// Parses a name like Docker: the default registry is Docker Hub, and the default tag `latest`.
    pub(crate) fn parse(name: &ImageName) -> Result<Self, Fault> {
        let parsed = distribution::Reference::try_from(name.as_str())
            .map_err(|e| Fault::refused(format!("its name is not a registry reference: {e}")))?;
        // The parser takes a first part in capitals for a registry, and then undoes that.
        if parsed.repository().bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(Fault::refused("its name has capitals in the repository"));
        }
        let digest = parsed
            .digest()
            .map(str::parse)
            .transpose()
            .map_err(|e| Fault::refused(format!("its name: {e}")))?;
        let registry = match parsed.registry() {
            host if host == DOCKER_HUB.0 => DOCKER_HUB.1,
            host => host,
        };
        Ok(Self {
            registry: registry.to_owned(),
            repository: parsed.repository().to_owned(),
            tag: parsed.tag().unwrap_or("latest").to_owned(),
            digest,
        })
    }

    /// The tag or digest with which its manifest is requested.
    pub(crate) fn wanted(&self) -> String {
        self.digest
            .map_or_else(|| self.tag.clone(), |digest| digest.to_string())
    }

    /// Whether the registry is on this machine, where connections cannot be intercepted.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = match self.registry.rsplit_once(':') {
            Some((host, _)) => host,
            None => &self.registry,
        };
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Reference, Fault> {
        Reference::parse(&text.parse().unwrap())
    }

    #[test]
    fn names_are_parsed_like_docker() {
        for (name, registry, repository, wanted) in [
            (
                "python:3.11",
                "registry-1.docker.io",
                "library/python",
                "3.11",
            ),
            ("org/app", "registry-1.docker.io", "org/app", "latest"),
            (
                "docker.io/python",
                "registry-1.docker.io",
                "library/python",
                "latest",
            ),
            ("ghcr.io/org/app:1", "ghcr.io", "org/app", "1"),
            ("127.0.0.1:5000/x", "127.0.0.1:5000", "x", "latest"),
            ("localhost/x:y", "localhost", "x", "y"),
        ] {
            let reference = parse(name).unwrap();
            assert_eq!(
                (
                    &*reference.registry,
                    &*reference.repository,
                    &*reference.wanted()
                ),
                (registry, repository, wanted)
            );
        }
    }

    #[test]
    fn a_digest_takes_precedence_over_a_tag() {
        let digest = Digest::of(b"x");
        let reference = parse(&format!("ghcr.io/a/b:1@{digest}")).unwrap();
        assert_eq!(reference.wanted(), digest.to_string());
        for bad in ["a@sha256:00", "UPPER/case", "a:b:c", "a@md5:00"] {
            assert!(matches!(parse(bad), Err(Fault::Refused(_))), "{bad}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for (name, loopback) in [
            ("127.0.0.1:5000/x", true),
            ("127.9.9.9/x", true),
            ("localhost:80/x", true),
            ("localhost.example.com/x", false),
            ("10.0.0.1:5000/x", false),
            ("python", false),
        ] {
            assert_eq!(parse(name).unwrap().is_loopback(), loopback, "{name}");
        }
    }
}
