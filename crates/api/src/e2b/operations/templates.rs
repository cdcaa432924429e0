//! E2B's operations on templates, builds and tags.
#![expect(clippy::too_many_lines, reason = "each function is one list")]

use shoal_protocol::build;

use super::group;
use crate::e2b::{builds, legacy, tag_groups, tags, templates, uploads};
use crate::openapi::operation::{BUILD, CREATE, Content, Operation, SNAPSHOT, TEMPLATE};

/// All of them, in the order of the document.
pub(super) fn operations() -> Vec<Operation> {
    let all = [of_templates(), of_builds(), of_tags()];
    all.into_iter().flatten().collect()
}

fn of_templates() -> Vec<Operation> {
    let e2b = group("E2B: templates");
    vec![
        e2b.op("GET", "/templates", "listTemplatesV1", "List templates")
            .query::<templates::ListQuery>()
            .lists::<templates::Template>(&[])
            .fails(&[403]),
        e2b.op(
            "GET",
            "/v2/templates",
            "listTemplates",
            "List templates by pages",
        )
        .query::<templates::ListQuery>()
        .lists::<templates::Template>(&["X-Next-Token"])
        .fails(&[403]),
        e2b.op(
            "GET",
            "/default-templates",
            "listDefaultTemplates",
            "List templates of the installation",
        )
        .lists::<templates::Template>(&[]),
        e2b.op(
            "GET",
            "/templates/{id}",
            "getTemplate",
            "Show a template with its builds",
        )
        .answers::<templates::TemplateWithBuilds>(200)
        .fails(CREATE),
        e2b.op(
            "DELETE",
            "/templates/{id}",
            "deleteTemplate",
            "Delete a template or a snapshot",
        )
        .empty(204)
        .fails(TEMPLATE)
        .fails(SNAPSHOT),
        e2b.op(
            "PATCH",
            "/templates/{id}",
            "publishTemplateV1",
            "Allow other teams to use a template, or not",
        )
        .deprecated()
        .required_body::<tags::Publish>()
        .answer(200, Content::Object, &[])
        .fails(TEMPLATE),
        e2b.op(
            "PATCH",
            "/v2/templates/{id}",
            "publishTemplate",
            "Allow other teams to use a template, or not",
        )
        .required_body::<tags::Publish>()
        .answers::<tags::Published>(200)
        .fails(TEMPLATE),
        e2b.op(
            "GET",
            "/templates/aliases/{alias}",
            "getTemplateByAlias",
            "Find a template by its name",
        )
        .answers::<templates::Alias>(200)
        .fails(CREATE),
    ]
}

fn of_builds() -> Vec<Operation> {
    let e2b = group("E2B: builds");
    let announce = "Announce a build, as older clients do";
    vec![
        e2b.op("POST", "/v3/templates", "announceBuild", "Announce a build")
            .body::<build::NewBuild>()
            .answers::<build::RequestedBuild>(202)
            .fails(BUILD),
        e2b.op("POST", "/templates", "announceBuildV1", announce)
            .deprecated()
            .required_body::<legacy::Request>()
            .answers::<templates::Template>(202)
            .fails(BUILD),
        e2b.op("POST", "/v2/templates", "announceBuildV2", announce)
            .deprecated()
            .required_body::<legacy::Request>()
            .answers::<templates::Template>(202)
            .fails(BUILD),
        e2b.op("POST", "/templates/{id}", "announceRebuild", announce)
            .deprecated()
            .required_body::<legacy::Request>()
            .answers::<templates::Template>(202)
            .fails(BUILD),
        e2b.op(
            "GET",
            "/templates/{id}/files/{hash}",
            "getUploadLink",
            "Show where to upload the files of a build",
        )
        .answers::<build::FileLink>(201)
        .fails(&[404]),
        e2b.op(
            "PUT",
            "/uploads/{team}/{hash}",
            "uploadFiles",
            "Upload the files of a build",
        )
        .about("Needs no key: the address is signed, and valid for 30 minutes.")
        .open()
        .query::<uploads::Signed>()
        .archive()
        .empty(200)
        .fails(&[403, 408, 507]),
        e2b.op(
            "POST",
            "/v2/templates/{id}/builds/{build}",
            "startBuild",
            "Start an announced build",
        )
        .body::<build::BuildStart>()
        .empty(202)
        .fails(BUILD),
        e2b.op(
            "POST",
            "/templates/{id}/builds/{build}",
            "startBuildV1",
            "Start a build of a pushed image: not supported",
        )
        .deprecated()
        .fails(&[400]),
        e2b.op(
            "DELETE",
            "/templates/{id}/builds/{build}",
            "cancelBuild",
            "Cancel a build",
        )
        .empty(204)
        .fails(BUILD),
        e2b.op(
            "GET",
            "/templates/{id}/builds/{build}/status",
            "getBuildStatus",
            "Show the status of a build and its log",
        )
        .query::<build::StatusQuery>()
        .answers::<build::BuildStatus>(200)
        .fails(BUILD),
        e2b.op(
            "GET",
            "/templates/{id}/builds/{build}/logs",
            "getBuildLogs",
            "Show the log of a build",
        )
        .query::<builds::LogsQuery>()
        .answers::<builds::Logs>(200)
        .fails(BUILD),
    ]
}

fn of_tags() -> Vec<Operation> {
    let e2b = group("E2B: tags");
    vec![
        e2b.op(
            "POST",
            "/templates/tags",
            "assignTags",
            "Add tags to a build or snapshot",
        )
        .body::<tags::Assign>()
        .answers::<tags::Assigned>(201)
        .fails(TEMPLATE),
        e2b.op("DELETE", "/templates/tags", "removeTags", "Remove tags")
            .body::<tags::Remove>()
            .empty(204)
            .fails(TEMPLATE)
            .fails(SNAPSHOT),
        e2b.op(
            "GET",
            "/templates/{id}/tags",
            "listTags",
            "List the tags of a template",
        )
        .lists::<tags::Tag>(&[])
        .fails(&[404]),
        e2b.op(
            "GET",
            "/templates/{id}/tags/exists",
            "hasTag",
            "Whether a template has a tag",
        )
        .query::<tags::ExistsQuery>()
        .answers::<tags::Exists>(200)
        .fails(&[404]),
        e2b.op(
            "GET",
            "/templates/{id}/tags/count",
            "countTags",
            "Count the tags of a template",
        )
        .answers::<tags::Count>(200)
        .fails(&[404]),
        e2b.op(
            "GET",
            "/templates/{id}/tags/groups",
            "listTagGroups",
            "List tags with their assignments, by pages",
        )
        .query::<tag_groups::GroupsQuery>()
        .answers::<tag_groups::Groups>(200)
        .fails(&[404]),
        e2b.op(
            "GET",
            "/templates/{id}/tags/{tag}/assignments",
            "listTagAssignments",
            "List the assignments of a tag",
        )
        .query::<tag_groups::AssignmentsQuery>()
        .answers::<tag_groups::Assignments>(200)
        .fails(&[404]),
    ]
}
