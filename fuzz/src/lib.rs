//! Input of strangers, each as a function of bytes that must not panic and holds some
//! promise. `make fuzz` hands them to libFuzzer; every test run feeds them the seeds.

#![expect(clippy::unwrap_used, reason = "a broken promise must be loud")]

mod connect;
mod kernel;
mod sync;
mod upload;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use shoal_core::image::ImageName;
use shoal_core::session::preview::{PreviewDomain, PreviewName};
use shoal_dockerfile::{Options, parse, plan};
use shoal_images::unpack::{Limits, unpack_bytes};
use shoal_oci::export::receive_bytes;

pub use connect::connect;
pub use kernel::kernel;
pub use sync::sync;
pub use upload::multipart;

/// A function that is fuzzed.
pub type Target = fn(&[u8]);

/// All of them, by the names of their seed directories.
pub const TARGETS: &[(&str, Target)] = &[
    ("connect", connect),
    ("dockerfile", dockerfile),
    ("host", host),
    ("image_name", image_name),
    ("import", import),
    ("kernel", kernel),
    ("layer", layer),
    ("multipart", multipart),
    ("sync", sync),
];

/// Which sandbox a request is for: lines of `name: value`, the first one the request's target.
///
/// A sandbox that is found has a port above zero, and is found again under the name it was found
/// by. An API host never names one by accident. The same holds of previews.
pub fn host(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let uri = lines.next().and_then(|line| Uri::try_from(line).ok());
    let uri = uri.unwrap_or_default();
    let mut headers = HeaderMap::new();
    for line in lines.take(16) {
        let mut halves = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (halves.next(), halves.next());
        let name = name.and_then(|name| HeaderName::from_bytes(name).ok());
        let value = value.and_then(|value| HeaderValue::from_bytes(value.trim_ascii()).ok());
        if let (Some(name), Some(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    for domain in [None, Some("e2b.localhost")] {
        preview(&headers, &uri, domain);
        let Ok(Some(target)) = shoal_gateway::find_target(&headers, &uri, domain) else {
            continue;
        };
        assert_ne!(target.port, 0);
        let name = format!("{}-{}.e2b.localhost", target.port, target.sandbox);
        let mut again = HeaderMap::new();
        again.insert(http::header::HOST, name.parse().unwrap());
        let found = shoal_gateway::find_target(&again, &Uri::default(), domain);
        assert_eq!(found, Ok(Some(target)));
    }
}

/// A preview that is found is found again under the name that is made of it, and is no sandbox.
fn preview(headers: &HeaderMap, uri: &Uri, domain: Option<&str>) {
    let previews = PreviewDomain::of(domain);
    let found = shoal_gateway::find_preview(headers, uri, &previews);
    let Some(PreviewName::Hash(hash)) = found else {
        return;
    };
    let name = previews.host(&hash);
    assert_eq!(previews.find(&name), Some(PreviewName::Hash(hash)));
    let mut again = HeaderMap::new();
    again.insert(http::header::HOST, name.parse().unwrap());
    let target = shoal_gateway::find_target(&again, &Uri::default(), None);
    assert_eq!(target, Ok(None));
}

/// A Dockerfile: each warning, error and step refers to an existing line, and a stage needs only earlier
/// stages.
pub fn dockerfile(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let options = Options {
        build_args: vec![("ARGUMENT".to_owned(), "$x \\".to_owned())],
        target: None,
        arch: "amd64".to_owned(),
        templates: Vec::new(),
    };
    let has = |line: u32| usize::try_from(line).unwrap() <= text.lines().count();
    match parse(&text).and_then(|parsed| plan(&parsed, &options)) {
        Err(problem) => assert!(has(problem.line)),
        Ok(plan) => {
            assert!(plan.warnings.iter().all(|warning| has(warning.line)));
            for (place, stage) in plan.stages.iter().enumerate() {
                assert!(stage.from_image.is_some() != stage.from_stage.is_some());
                assert!(stage.from_stage.is_none_or(|other| other < place));
                for staged in &stage.steps {
                    assert!(has(staged.line) && staged.line > 0);
                    assert!(staged.step.from_stage.is_none_or(|other| other < place));
                }
            }
        }
    }
}

/// The name of an image: what is taken is written as it would be taken again.
pub fn image_name(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(name) = text.parse::<ImageName>() {
        assert_eq!(name.as_str().parse::<ImageName>().as_ref(), Ok(&name));
    }
}

/// An exported snapshot without its seal: nothing of it comes to lie beside where it belongs, and
/// nothing in it is a device or speaks to overlayfs but what the export's own marks say.
pub fn import(data: &[u8]) {
    let around = tempfile::tempdir().unwrap();
    let beside = around.path().join("beside");
    fs::write(&beside, "as it was").unwrap();
    let into = around.path().join("into");
    fs::create_dir(&into).unwrap();
    let limits = Limits {
        bytes: 1 << 20,
        file_bytes: 1 << 30,
        entries: 1000,
        reserve_bytes: 0,
        reserve_inodes: 0,
    };
    let taken = receive_bytes(data, &into, &limits);
    assert_eq!(fs::read_to_string(&beside).unwrap(), "as it was");
    assert_eq!(fs::read_dir(around.path()).unwrap().count(), 2);
    for name in names(&into) {
        assert!(
            ["envd", "memory", "files"].contains(&name.as_str()),
            "{name}"
        );
    }
    let files = into.join("files");
    if files.exists() {
        assert_eq!(names(&files), ["upper", "work"]);
        for name in ["upper", "work"] {
            let found = fs::symlink_metadata(files.join(name)).unwrap();
            assert!(found.is_dir(), "{name} is a directory of its own");
        }
        assert!(names(&files.join("work")).is_empty());
        only_whiteouts(&files.join("upper"));
    }
    assert!(taken.is_err() || files.exists());
}

/// That each device below a directory is one with which overlayfs hides a name.
fn only_whiteouts(directory: &Path) {
    // Only root can read directories that an archive has closed.
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries {
        let entry = entry.unwrap();
        let found = entry.metadata().unwrap();
        assert!(!found.file_type().is_block_device());
        assert!(!found.file_type().is_char_device() || found.rdev() == 0);
        if found.is_dir() {
            only_whiteouts(&entry.path());
        }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A layer of an image, compressed or not: nothing of it comes to lie beside where it belongs.
pub fn layer(data: &[u8]) {
    let around = tempfile::tempdir().unwrap();
    let beside = around.path().join("beside");
    fs::write(&beside, "as it was").unwrap();
    let into = around.path().join("into");
    fs::create_dir(&into).unwrap();
    let limits = Limits {
        bytes: 1 << 20,
        file_bytes: 1 << 20,
        entries: 1000,
        reserve_bytes: 0,
        reserve_inodes: 0,
    };
    // Refusals are fine; the place of the other files counts.
    let _ = unpack_bytes(data, &into, &limits);
    assert_eq!(fs::read_to_string(&beside).unwrap(), "as it was");
    assert_eq!(fs::read_dir(around.path()).unwrap().count(), 2);
}
