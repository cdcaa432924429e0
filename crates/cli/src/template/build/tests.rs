//! Tests of archives, and of requests to a fake server.

mod files;
mod wire;

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: BuildArgs,
}

fn asked(line: &[&str]) -> Result<NewBuild, Failure> {
    let line = Line::parse_from([&["build"], line].concat());
    new_build(&line.args, Path::new("."))
}

#[test]
fn a_template_is_named_by_tags_or_by_the_context() {
    let new = asked(&["-t", "app:v1", "-t", "app:v2", "--memory", "1G"]).unwrap();
    assert_eq!(new.name.as_deref(), Some("app"));
    assert_eq!(new.tags, Some(vec!["v1".to_owned(), "v2".to_owned()]));
    assert_eq!(new.memory_mb, Some(1024));
    assert_eq!(asked(&["-t", "app"]).unwrap().tags, None);
    assert!(asked(&["-t", "app:v1", "-t", "web:v2"]).is_err());
    let around = tempfile::tempdir().unwrap();
    let directory = around.path().join("My App.");
    std::fs::create_dir(&directory).unwrap();
    assert_eq!(own_name(&directory).unwrap(), "my-app");
    assert!(own_name(Path::new("/")).is_err());
}
