//! Templates and images.

use std::path::PathBuf;

use shoal_contents::Bucket;
use shoal_core::image::ImageName;
use shoal_core::session::networks::Networks;
use shoal_engine::{BuildOnDemand, CustomImages, Defaults};
use shoal_sessions::SessionTemplates;

use super::read::{Reader, items};

const REGISTRIES: &str = "registries separated by commas, like registry.lan:5000";

/// The settings `templates.*` and `images.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemplatesConfig {
    /// The file with the catalogue.
    pub(crate) file: PathBuf,
    /// The template and image of a request without either.
    pub(crate) defaults: Defaults,
    /// The keys whose requests may name an image.
    pub(crate) custom_images: CustomImages,
    /// The keys whose requests may start the build of a built-in template.
    pub(crate) build_on_demand: BuildOnDemand,
    /// Registries without TLS.
    pub(crate) plain_http: Vec<String>,
    /// Registries at private addresses that tenants may name.
    pub(crate) private_registries: Vec<String>,
    /// The mirror of Ubuntu's packages.
    pub(crate) ubuntu_mirror: Option<String>,
    /// The templates of the machines of sessions.
    pub(crate) sessions: SessionTemplates,
    /// Where the contents of session files are; none for the data directory.
    pub(crate) contents: Option<Bucket>,
    /// Whether machines of sessions may be privileged.
    pub(crate) privileged: bool,
    /// The networks of the external machines of sessions.
    pub(crate) ssh_networks: Networks,
}

pub(super) fn read(reader: &mut Reader<'_>) -> Option<TemplatesConfig> {
    let file = reader.parse("templates.file", "a path");
    let template = reader.optional("templates.default", "a template name", |text| {
        text.parse().ok()
    });
    let name = "an image name like python:3.11";
    let image = reader.optional("templates.default_image", name, |text| text.parse().ok());
    let custom_images = reader.with(
        "templates.custom_images",
        "admin or any",
        |text| match text {
            "admin" => Some(CustomImages::Admins),
            "any" => Some(CustomImages::Everyone),
            _ => None,
        },
    );
    let build_on_demand = reader.with(
        "templates.build_on_demand",
        "admin or any",
        |text| match text {
            "admin" => Some(BuildOnDemand::Admins),
            "any" => Some(BuildOnDemand::Everyone),
            _ => None,
        },
    );
    let plain_http = reader.with("images.plain_http", REGISTRIES, |text| {
        items(text).map(parse_registry).collect()
    });
    let private_registries = reader.with("images.private_registries", REGISTRIES, |text| {
        items(text).map(parse_registry).collect()
    });
    let url = "a URL like http://mirror.lan/ubuntu";
    let ubuntu_mirror = reader.optional("images.ubuntu_mirror", url, parse_mirror);
    let sessions = read_sessions(reader);
    let bucket = "a URL like s3://bucket/prefix";
    let contents = reader.optional("sessions.contents", bucket, |text| text.parse().ok());
    let privileged = reader.parse("sessions.privileged", "true or false");
    let ssh_networks = reader.with(
        "sessions.ssh_networks",
        "`public`, addresses or ranges separated by commas, like public,10.0.0.0/8",
        |text| items(text).map(|item| item.parse().ok()).collect(),
    );
    Some(TemplatesConfig {
        file: file?,
        defaults: Defaults {
            template: template?,
            image: image?,
        },
        custom_images: custom_images?,
        build_on_demand: build_on_demand?,
        plain_http: plain_http?,
        private_registries: private_registries?,
        ubuntu_mirror: ubuntu_mirror?,
        sessions: sessions?,
        contents: contents?,
        privileged: privileged?,
        ssh_networks: ssh_networks?,
    })
}

fn read_sessions(reader: &mut Reader<'_>) -> Option<SessionTemplates> {
    let template = reader.parse("sessions.template", "a template name");
    let docker = reader.parse("sessions.docker_template", "a template name");
    let fallback = reader.optional("sessions.fallback", "a template name", |text| {
        text.parse().ok()
    });
    Some(SessionTemplates {
        template: template?,
        fallback: fallback?,
        docker: docker?,
    })
}

/// The URL of a mirror: a word in a list of sources.
fn parse_mirror(text: &str) -> Option<String> {
    let known = ["http://", "https://", "file:/"];
    let is_url = known.iter().any(|begin| text.starts_with(begin));
    let is_word = text.bytes().all(|b| b.is_ascii_graphic() && b != b'[');
    (is_url && is_word).then(|| text.trim_end_matches('/').to_owned())
}

/// A registry as in an image name: a host and perhaps a port.
fn parse_registry(text: &str) -> Option<String> {
    let image: Option<ImageName> = format!("{text}/x").parse().ok();
    let is_host = !text.contains('/') && text.contains(['.', ':']);
    image.filter(|_| is_host).map(|_| text.to_owned())
}
