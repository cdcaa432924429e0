//! The operations of templates, the catalogue and pools.

use shoal_protocol::build::RequestedBuild;
use shoal_protocol::native as wire;

use super::group;
use crate::native::catalogue;
use crate::openapi::operation::{CREATE, Content, IMAGE, Operation, RequestHeader, TEMPLATE};

const IF_MATCH: RequestHeader = RequestHeader(
    "If-Match",
    "Version that the edit is based on, as in `\"3\"`. Another version in force is answered with 409.",
);

/// The operations of templates, the catalogue and pools.
pub(super) fn operations() -> Vec<Operation> {
    let native = group("Native: templates");
    vec![
        native
            .op("GET", "/templates", "listNativeTemplates", "List templates")
            .lists::<wire::Template>(&[]),
        native
            .op(
                "POST",
                "/templates",
                "createTemplate",
                "Create a template from an image of the machine",
            )
            .admin()
            .body::<wire::NewTemplate>()
            .answers::<wire::Template>(201)
            .fails(TEMPLATE)
            .fails(IMAGE),
        native
            .op(
                "GET",
                "/templates/{id}",
                "getNativeTemplate",
                "Show a template",
            )
            .answers::<wire::Template>(200)
            .fails(TEMPLATE),
        native
            .op(
                "DELETE",
                "/templates/{id}",
                "deleteNativeTemplate",
                "Delete a template",
            )
            .admin()
            .answers::<()>(200)
            .fails(TEMPLATE),
        native
            .op(
                "POST",
                "/templates/{id}/build",
                "buildTemplate",
                "Build a template of the installation",
            )
            .about("Needs an admin key, unless `templates.build_on_demand` says otherwise.")
            .body::<wire::BuildTemplate>()
            .answers::<RequestedBuild>(201)
            .fails(&[403, 404, 409, 507]),
        native
            .op(
                "POST",
                "/builds",
                "buildDockerfile",
                "Build a template from a Dockerfile",
            )
            .about(
                "The Dockerfile copies no files of the client. The response is the build, already started: E2B's routes \
                 show its status and log.",
            )
            .required_body::<wire::BuildDockerfile>()
            .answers::<wire::DockerfileBuild>(201)
            .fails(&[403, 404, 409, 507]),
        native
            .op(
                "GET",
                "/config/templates",
                "getCatalogue",
                "Show the template catalogue",
            )
            .answer(
                200,
                Content::Json(|generator| generator.subschema_for::<wire::Catalogue>()),
                &["ETag"],
            ),
        native
            .op(
                "POST",
                "/config/templates",
                "replaceCatalogue",
                "Replace the template catalogue",
            )
            .about("All entries or none. A bare list of entries is accepted too.")
            .admin()
            .query::<catalogue::ReplaceQuery>()
            .headers(&[IF_MATCH])
            .required_body::<wire::ReplaceCatalogue>()
            .answer(
                200,
                Content::Json(|generator| generator.subschema_for::<wire::Catalogue>()),
                &["ETag"],
            )
            .fails(&[409, 507]),
        native
            .op(
                "GET",
                "/config/templates/resolve",
                "resolveTemplate",
                "Explain what a template or image resolves to",
            )
            .query::<catalogue::ResolveQuery>()
            .answers::<wire::ResolvedTemplate>(200)
            .fails(CREATE),
        native
            .op(
                "GET",
                "/config/blueprint",
                "getBlueprint",
                "Show the blueprint of pods",
            )
            .about("Where sandboxes are pods of a cluster.")
            .admin()
            .answers::<wire::Blueprint>(200)
            .fails(&[404]),
        native
            .op(
                "POST",
                "/config/blueprint",
                "replaceBlueprint",
                "Replace the blueprint of pods",
            )
            .about(
                "Checked by rendering every entry of the catalogue with it. The YAML itself is accepted as the body, \
                 too.",
            )
            .admin()
            .required_body::<wire::ReplaceBlueprint>()
            .answers::<wire::Blueprint>(200)
            .fails(&[404, 409]),
        native
            .op("GET", "/pool", "listPools", "List pools")
            .admin()
            .lists::<wire::Pool>(&[]),
        native
            .op(
                "GET",
                "/pool/sandbox/{id}",
                "listPoolMembers",
                "List members of a pool, the next to be claimed first",
            )
            .admin()
            .lists::<wire::PoolMember>(&[])
            .fails(&[404]),
        native
            .op("GET", "/pool/history/{id}", "getPoolHistory", "Show the last hours of a pool")
            .about(
                "One sample a minute for twelve hours, and the present state at the end. Lost when the server stops; empty in a \
                 cluster.",
            )
            .admin()
            .lists::<wire::PoolSample>(&[])
            .fails(&[404]),
        native
            .op(
                "DELETE",
                "/pool/{id}",
                "removePoolMembers",
                "Remove a member, or all members of a pool",
            )
            .about("Removed members are replaced.")
            .admin()
            .answers::<wire::RemovedMembers>(200)
            .fails(&[404]),
    ]
}
