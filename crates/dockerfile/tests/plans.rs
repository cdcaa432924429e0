//! The plans of Dockerfiles.
#![expect(clippy::unwrap_used, reason = "tests")]

use shoal_dockerfile::{Options, Plan, Problem, Source, parse, plan};

fn options() -> Options {
    Options {
        arch: "amd64".to_owned(),
        ..Options::default()
    }
}

fn with(text: &str, options: &Options) -> Result<Plan, Problem> {
    plan(&parse(text)?, options)
}

fn planned(text: &str) -> Plan {
    with(text, &options()).unwrap()
}

/// The steps of a stage, one per line, without those that every stage over an image starts with.
fn steps(plan: &Plan, stage: usize) -> Vec<String> {
    let stage = &plan.stages[stage];
    let steps = stage.steps.iter().map(|staged| {
        assert_eq!(staged.step.line, Some(staged.line));
        format!(
            "{} {} {}",
            staged.line,
            staged.step.kind,
            staged.step.args.join("|")
        )
    });
    let begin = if stage.from_image.is_some() { 2 } else { 0 };
    steps.skip(begin).collect()
}

/// The steps of the stage to build, without its last ones.
fn main_steps(text: &str) -> Vec<String> {
    let text = format!("{text}\nUSER u\nWORKDIR /w\n");
    let plan = planned(&text);
    let mut steps = steps(&plan, plan.stages.len() - 1);
    steps.truncate(steps.len() - 2);
    steps
}

fn refusal(text: &str) -> (u32, String) {
    let problem = with(text, &options()).unwrap_err();
    (problem.line, problem.message)
}

#[test]
fn a_stage_begins_as_docker_has_it_and_ends_as_e2b_does() {
    let plan = planned("FROM debian\n\nRUN true\n");
    let all: Vec<_> = plan.stages[0]
        .steps
        .iter()
        .map(|staged| {
            (
                staged.line,
                staged.step.kind.as_str(),
                staged.step.args[0].as_str(),
            )
        })
        .collect();
    assert_eq!(
        all,
        [
            (1, "USER", "root"),
            (1, "WORKDIR", "/"),
            (3, "RUN", "true"),
            (1, "USER", "user"),
            (1, "WORKDIR", "/home/user"),
        ]
    );
    assert_eq!(plan.stages[0].from_image.as_deref(), Some("debian"));
    let said = planned("FROM debian\nUSER me\nWORKDIR sub\n");
    assert_eq!(steps(&said, 0), ["2 USER me", "3 WORKDIR sub"]);
}

#[test]
fn a_run_keeps_its_variables_for_the_shell() {
    assert_eq!(
        main_steps("FROM a\nARG V=1\nRUN echo $V \\\n  '${X:-y}'\nRUN [\"a b\", \"$V\"]"),
        ["2 ARG V|1", "3 RUN echo $V   '${X:-y}'", "5 RUN 'a b' '$V'"]
    );
}

#[test]
fn a_heredoc_is_a_script_or_input() {
    assert_eq!(
        main_steps("FROM a\nRUN <<EOF\none\ntwo\nEOF\nRUN cat <<A > f\nx\nA"),
        ["2 RUN one\ntwo\n", "6 RUN cat <<A > f\nx\nA"]
    );
    let script = main_steps("FROM a\nRUN <<EOF\n#!/usr/bin/env python3\nprint(1)\nEOF");
    assert!(
        script[0].contains("<<'EOF'\n#!/usr/bin/env python3\nprint(1)\nEOF\n"),
        "{script:?}"
    );
}

#[test]
fn a_shell_runs_lines_and_no_words() {
    assert_eq!(
        main_steps(
            "FROM a\nSHELL [\"bash\", \"-o\", \"pipefail\", \"-c\"]\nRUN a | b\nRUN [\"c\"]"
        ),
        ["3 RUN bash -o pipefail -c 'a | b'", "4 RUN c"]
    );
}

#[test]
fn variables_are_put_where_docker_puts_them() {
    let text = "ARG TAG=12\nFROM debian:${TAG}\nARG TAG\nARG D=/opt/$TAG\nENV HOME=$D A=\"x y\"\n\
                WORKDIR $HOME/in\nCOPY --chown=$TAG a $D/\nUSER u$TAG\nENV P=$PATH:$D L '$A'";
    let text = text.replace("L '$A'", "L='$A'");
    let plan = planned(&text);
    assert_eq!(plan.stages[0].from_image.as_deref(), Some("debian:12"));
    assert_eq!(
        steps(&plan, 0),
        [
            "3 ARG TAG|12",
            "4 ARG D|/opt/12",
            "5 ENV HOME|/opt/12|A|x y",
            "6 WORKDIR /opt/12/in",
            "7 COPY a|/opt/12/|12|",
            "8 USER u12",
            "9 ENV P|${PATH}:/opt/12|L|\\$A",
        ]
    );
}

#[test]
fn an_instruction_sees_variables_as_they_were_before_it() {
    assert_eq!(
        main_steps("FROM a\nENV A=1\nENV A=2 B=$A\nENV old style  value"),
        ["2 ENV A|1", "3 ENV A|2|B|1", "4 ENV old|style  value"]
    );
}

#[test]
fn a_build_argument_wins_over_a_default_and_env_over_both() {
    let mut options = options();
    options.build_args = vec![("V".into(), "said".into()), ("W".into(), "x".into())];
    let plan = with(
        "FROM a\nARG V=no\nARG U\nENV E=env\nARG E=arg\nRUN x${U:-}\nUSER $V$E${U:-}\n",
        &options,
    )
    .unwrap();
    assert_eq!(
        &steps(&plan, 0)[..4],
        [
            "2 ARG V|said",
            "4 ENV E|env",
            "6 RUN x${U:-}",
            "7 USER saidenv"
        ]
    );
    assert_eq!(plan.warnings.len(), 1);
    assert!(plan.warnings[0].message.contains('W'));
}

#[test]
fn proxies_count_without_an_arg() {
    let mut options = options();
    options.build_args = vec![("http_proxy".into(), "http://p:1".into())];
    let plan = with("FROM a\n", &options).unwrap();
    assert_eq!(steps(&plan, 0)[0], "1 ARG http_proxy|http://p:1");
    assert!(plan.warnings.is_empty());
}

#[test]
fn a_variable_of_the_image_is_refused_where_it_must_be_known() {
    let (line, message) = refusal("FROM golang\nCOPY . $GOPATH/src\n");
    assert_eq!(line, 2);
    assert!(message.contains("$GOPATH"), "{message}");
    assert_eq!(refusal("FROM x:$TAG\n").0, 1);
    // A default is used.
    assert_eq!(
        main_steps("FROM a\nARG X\nWORKDIR ${X:-/d}"),
        ["3 WORKDIR /d"]
    );
}

#[test]
fn copies_have_an_owner_a_mode_and_one_place() {
    assert_eq!(
        main_steps("FROM a\nUSER me\nCOPY --chmod=755 --link a b/ .\nADD [\"c d\", \"/e\"]"),
        [
            "2 USER me",
            "3 COPY a b/|./|root:root|0755",
            "4 COPY c d|/e|root:root|"
        ]
    );
    let plan = planned("FROM a\nADD a b /d/\n");
    let files = plan.stages[0].steps[2].files.clone().unwrap();
    assert!(files.unpacks);
    assert_eq!(files.sources.len(), 2);
    for text in [
        "COPY a b /d",
        "COPY a",
        "COPY --chmod=u+x a b",
        "COPY --parents a b",
        "COPY --colour=red a b",
        "ADD https://example.com/a /a",
        "ADD git@example.com:a.git /a",
        "ADD --from=x a b",
        "COPY --from=3 a b",
        "COPY --from=$X a b",
    ] {
        assert_eq!(refusal(&format!("FROM a\n{text}\n")).0, 2, "{text}");
    }
}

#[test]
fn a_text_in_the_dockerfile_is_a_file() {
    let plan = planned("FROM a\nENV A=1\nCOPY <<one <<'two' /d/\n$A \"q\"\none\n$A\ntwo\n");
    let files = plan.stages[0].steps[3].files.clone().unwrap();
    let inline = |name: &str, text: &str| Source::Inline {
        name: name.to_owned(),
        text: text.to_owned(),
    };
    assert_eq!(
        files.sources,
        [inline("one", "1 \"q\"\n"), inline("two", "$A\n")]
    );
}

#[test]
fn only_the_stages_that_are_needed_are_built() {
    let text = "FROM one AS base\nENV A=1\nARG B=2\nFROM two AS unused\nRUN no\nFROM base AS build\n\
                RUN make $A\nUSER $A\nFROM three\nCOPY --from=Build /out/* x /bin/\n\
                COPY --from=2 out y\nCOPY --from=busybox:1 /bin/ls /ls\n";
    let plan = planned(text);
    assert_eq!(plan.stages.len(), 4);
    // An image that files are copied from is a stage, with the line that names it.
    assert_eq!(plan.stages[2].from_image.as_deref(), Some("busybox:1"));
    assert_eq!((plan.stages[2].line, plan.stages[2].steps.len()), (12, 0));
    assert_eq!(plan.stages[1].from_stage, Some(0));
    assert_eq!(plan.stages[1].name.as_deref(), Some("build"));
    assert_eq!(steps(&plan, 1), ["7 RUN make $A", "8 USER 1"]);
    let copies: Vec<_> = plan.stages[3].steps[2..6]
        .iter()
        .map(|staged| {
            let step = &staged.step;
            (
                step.args[0].as_str(),
                step.from_stage,
                step.from_image.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        copies,
        [
            ("/out/*", Some(1), None),
            ("/x", Some(1), None),
            ("/out", Some(1), None),
            ("/bin/ls", Some(2), None),
        ]
    );
    // Arguments end with their stage.
    assert_eq!(refusal("FROM a AS b\nARG C=1\nFROM b\nUSER $C\n").0, 4);
}

#[test]
fn a_target_is_a_name_or_a_number() {
    let text = "FROM a AS one\nFROM b AS two\nRUN x\nFROM one\n";
    for (target, image) in [("one", "a"), ("TWO", "b"), ("1", "b"), ("2", "a")] {
        let mut options = options();
        options.target = Some(target.to_owned());
        let plan = with(text, &options).unwrap();
        assert_eq!(
            plan.stages[0].from_image.as_deref(),
            Some(image),
            "{target}"
        );
    }
    let mut options = options();
    options.target = Some("three".to_owned());
    let problem = with(text, &options).unwrap_err();
    assert!(problem.hint.unwrap().contains("one, two"));
}

#[test]
fn other_processors_are_refused() {
    planned(
        "FROM --platform=linux/amd64 a\nFROM --platform=$BUILDPLATFORM a\nFROM --platform=x86_64 a\n",
    );
    for platform in ["linux/arm64", "arm64", "windows/amd64"] {
        let (line, message) = refusal(&format!("FROM --platform={platform} a\n"));
        assert_eq!(line, 1);
        assert!(message.contains("linux/amd64"), "{message}");
    }
    assert_eq!(
        main_steps("FROM a\nARG TARGETARCH"),
        ["2 ARG TARGETARCH|amd64"]
    );
}

#[test]
fn what_runs_in_every_sandbox_is_of_entrypoint_and_cmd() {
    for (text, start) in [
        ("", None),
        ("CMD python3 -m http.server", Some("python3 -m http.server")),
        ("CMD [\"a\", \"b c\"]", Some("a 'b c'")),
        ("CMD [\"x\"]\nENTRYPOINT [\"a\"]", Some("a x")),
        ("ENTRYPOINT a $X\nCMD [\"b\"]", Some("a $X")),
        ("ENTRYPOINT [\"a\"]\nCMD b c", Some("a /bin/sh -c 'b c'")),
        ("CMD a\nCMD []", None),
    ] {
        let plan = planned(&format!("FROM a\n{text}\n"));
        assert_eq!(plan.start_cmd.as_deref(), start, "{text}");
    }
    let below = planned("FROM a AS b\nCMD [\"x\"]\nFROM b\nENTRYPOINT [\"y\"]\n");
    assert_eq!(below.start_cmd.as_deref(), Some("y"));
}

#[test]
fn what_changes_nothing_is_told_and_what_would_be_missed_is_refused() {
    let plan = planned(
        "FROM a\nEXPOSE 80\nLABEL a=b\nVOLUME /v\nSTOPSIGNAL 9\nHEALTHCHECK NONE\nMAINTAINER me\n\
         RUN --mount=type=cache,target=/c --network=default x\nUSER 1:2\n",
    );
    assert_eq!(steps(&plan, 0)[1], "9 USER 1");
    let lines: Vec<u32> = plan.warnings.iter().map(|warning| warning.line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6, 7, 8, 9]);
    for text in [
        "ONBUILD RUN x",
        "RUN --mount=type=secret,id=a x",
        "RUN --mount=target=/x x",
        "RUN --network=none x",
        "RUN --security=insecure x",
        "SHELL bash",
        "USER a b",
        "USER a/b",
        "USER :g",
        "COPY --chown=a:b:c x /y",
        "ENV A-B=1",
        "ARG 1=2",
        "USER ''",
        "WORKDIR \"a",
        "ENV A",
        "ENV A=1 B",
    ] {
        assert_eq!(refusal(&format!("FROM a\n{text}\n")).0, 2, "{text}");
    }
    for text in [
        "RUN x\nFROM a",
        "FROM scratch",
        "FROM a AS 1",
        "FROM a b",
        "FROM ${X:-}",
    ] {
        assert_eq!(refusal(&format!("{text}\n")).0, 1, "{text}");
    }
    assert_eq!(refusal("FROM a AS x\nFROM b AS X\n").0, 2);
}

#[test]
fn variables_of_env_are_kept_and_those_of_arg_are_not() {
    let plan = planned("ARG A=1\nFROM x AS below\nARG B=2\nENV C=3\nFROM below\nENV D=$C E=5\n");
    assert_eq!(plan.keep_env, ["C", "D", "E"]);
    assert!(planned("FROM x\nARG B=2\n").keep_env.is_empty());
}

#[test]
fn a_path_outlives_the_login_shells_of_later_steps() {
    let steps = main_steps("FROM x\nENV PATH=/opt/bin:$PATH\nENV OTHER=1");
    assert_eq!(steps[0], "2 ENV PATH|/opt/bin:${PATH}");
    assert!(steps[1].starts_with("2 RUN path=") && steps[1].ends_with("|root"));
    assert_eq!(steps[2], "3 ENV OTHER|1");
}
