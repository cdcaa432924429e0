use std::sync::Arc;

use serde_json::json;

use super::*;

fn tool(name: &str, description: &str) -> Tool {
    let schema = json!({"type": "object"}).as_object().cloned().unwrap();
    Tool::new(name.to_owned(), description.to_owned(), Arc::new(schema))
}

#[test]
fn tools_have_names_that_agents_accept_and_no_hints_of_their_own() {
    let long = "x".repeat(NAME_MAX);
    let mut good = tool("read", &"d".repeat(DESCRIPTION_MAX + 1));
    good.annotations = Some(Effect::Reads.hints());
    let tools = vec![
        good,
        tool("read", "again"),
        tool("a b", ""),
        tool(&long, ""),
        tool("", ""),
    ];
    let offered = offered("fs", tools);
    assert_eq!(offered.left_out, ["read", "a b", &long, ""]);
    let [one] = offered.tools.as_slice() else {
        panic!("{offered:?}");
    };
    assert_eq!(one.name, "fs__read");
    assert_eq!(one.description.as_ref().unwrap().len(), DESCRIPTION_MAX);
    assert_eq!(one.annotations, Some(Effect::Runs.hints()));
}

#[test]
fn a_server_has_a_bounded_number_of_tools() {
    let tools = (0..TOOLS_MAX + 9)
        .map(|n| tool(&format!("t{n}"), ""))
        .collect();
    let offered = offered("many", tools);
    assert_eq!(
        (offered.tools.len(), offered.left_out.len()),
        (TOOLS_MAX, 9)
    );
}

#[test]
fn definitions_have_a_bounded_length() {
    let schema = |bytes: usize| {
        let schema = json!({"type": "object", "description": "d".repeat(bytes)});
        Arc::new(schema.as_object().cloned().unwrap())
    };
    let tools = [DEFINITIONS_MAX / 2, DEFINITIONS_MAX, DEFINITIONS_MAX / 4];
    let named = tools.into_iter().enumerate();
    let tools = named.map(|(n, bytes)| Tool::new(format!("t{n}"), "", schema(bytes)));
    let offered = offered("big", tools.collect());
    let names: Vec<&str> = offered.tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(
        (names.as_slice(), offered.left_out.as_slice()),
        (&["big__t0", "big__t2"][..], &["t1".to_owned()][..])
    );
}

#[test]
fn names_of_servers_are_checked() {
    let servers = InnerServers::default();
    servers.check("file-system-2").unwrap();
    for name in ["", "a_b", "A", "a.b", &"x".repeat(25)] {
        assert_eq!(
            servers.check(name).unwrap_err().code,
            "invalid_argument",
            "{name}"
        );
    }
    assert!(!servers.stop("none"));
    assert!(servers.find("none__tool").is_none() && servers.find("tool").is_none());
}
