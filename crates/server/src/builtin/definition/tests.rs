use super::*;

const TEXT: &str = r#"
    description = "x"
    from = "base"
    processors = 2
    memory_mb = 512
    apt = ["r-base"]
    pip = ["numpy>=2,<3"]
    ready = "true"
    [files]
    "/etc/x" = "x"
"#;

#[test]
fn packages_come_before_files_and_mirrors_do_not_stay() {
    let definition = Definition::read(TEXT, &[("x", "y")]).unwrap();
    let prepared = definition.prepare().unwrap();
    let steps = prepared.plan.stages[0].steps.iter();
    let steps: Vec<String> = steps.map(|step| step.action.to_string()).collect();
    assert!(steps[0].contains("install") && steps[0].contains("r-base"));
    assert_eq!(steps[1], format!("COPY . {MIRRORS}"));
    assert!(steps[2].contains("'numpy>=2,<3'"));
    assert!(steps[2].ends_with(&format!("rm -r {MIRRORS}")));
    assert_eq!(steps[3], "COPY . /");
    assert_eq!(steps.len(), 4);
}

#[test]
fn what_is_optional_comes_after_what_is_not_and_takes_the_mirrors_away() {
    let text = format!("{TEXT}\n[[optional]]\nname = \"R\"\napt = [\"r-cran-irkernel\"]");
    let definition = Definition::read(&text, &[("x", "y")]).unwrap();
    let prepared = definition.prepare().unwrap();
    let steps = prepared.plan.stages[0].steps.iter();
    let steps: Vec<String> = steps.map(|step| step.action.to_string()).collect();
    assert!(steps[2].contains("'numpy>=2,<3'") && !steps[2].contains("rm -r"));
    assert!(steps[3].contains("r-cran-irkernel") && steps[3].ends_with(REMOVE));
    let bad = text.replace("r-cran-irkernel", "x; reboot");
    assert!(Definition::read(&bad, &[("x", "y")]).is_err());
}

#[test]
fn another_release_and_another_user_come_before_its_shell_lines() {
    let own = "release = \"noble\"\nuser = \"worker\"\nworkdir = \"/home/worker\"\n\
        npm = [\"pnpm@10\"]\nrun = [\"true\"]\n[files]";
    let text = TEXT.replace("[files]", own);
    let definition = Definition::read(&text, &[("x", "y")]).unwrap();
    let prepared = definition.prepare().unwrap();
    let stage = &prepared.plan.stages[0];
    let release = definition.release().unwrap();
    let (image, otherwise) = (release.image.clone(), "base".parse().unwrap());
    assert!(image.as_str().starts_with("shoal/base-noble:"));
    assert_eq!(release.recipe.suite.as_str(), "noble");
    assert_eq!(stage.base, Base::Release { image, otherwise });
    let steps: Vec<String> = stage.steps.iter().map(|s| s.action.to_string()).collect();
    assert!(steps[2].contains("numpy") && !steps[2].contains("rm -r"));
    assert!(steps[3].contains("'pnpm@10'") && steps[3].contains("left out: pnpm@10"));
    assert!(steps[3].ends_with(REMOVE));
    assert_eq!(
        steps[4..],
        [
            "COPY . /",
            "USER worker",
            "WORKDIR /home/worker",
            "RUN true"
        ]
    );
}

#[test]
fn a_definition_that_extends_another_begins_with_its_steps() {
    let below = Definition::read(TEXT, &[("x", "y")]).unwrap();
    let shared = below.prepare().unwrap();
    let own = r#"
        description = "z"
        from = "below"
        processors = 4
        memory_mb = 1024
        run = ["true"]
        [files]
        "/etc/z" = "z"
    "#;
    let definition = Definition::read(own, &[("z", "z")]).unwrap();
    assert!(definition.is_from("below") && !definition.is_from("base"));
    let definition = definition.over(below);
    let prepared = definition.prepare().unwrap();
    let steps = |prepared: &PreparedBuiltin| {
        let steps = prepared.plan.stages[0].steps.iter();
        steps
            .map(|step| step.action.to_string())
            .collect::<Vec<_>>()
    };
    let (all, first) = (steps(&prepared), steps(&shared));
    assert_eq!(all[..first.len()], first);
    assert_eq!(all[first.len()..], ["COPY . /", "RUN true"]);
    assert_eq!(
        prepared.plan.stages[0].base,
        Base::Template("base".parse().unwrap())
    );
    assert_eq!(prepared.plan.ready.as_deref(), Some("true"));
    assert_eq!(definition.resources().memory, Mib(1024));
    assert!(
        shared
            .files
            .iter()
            .all(|files| prepared.files.contains(files))
    );
    assert_eq!(prepared.files.len(), shared.files.len() + 1);
}

#[test]
fn what_is_no_package_and_what_is_not_there_is_refused() {
    let bad = TEXT.replace("r-base", "x; reboot");
    assert!(Definition::read(&bad, &[("x", "y")]).is_err());
    let bad = TEXT.replace("numpy>=2,<3", "--index-url=x");
    assert!(Definition::read(&bad, &[("x", "y")]).is_err());
    assert!(Definition::read(TEXT, &[]).is_err());
    assert!(Definition::read(&TEXT.replace("ready", "redy"), &[("x", "y")]).is_err());
}
