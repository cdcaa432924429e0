//! `shoal cluster ls`.

use clap::Args;

use super::api::Cluster;
use crate::failure::Failure;
use crate::output::{self, Table};

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// The sandboxes of all namespaces.
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Print only names.
    #[arg(long, short)]
    quiet: bool,
}

impl ListArgs {
    pub(super) async fn run(self, cluster: &Cluster, json: bool) -> Result<(), Failure> {
        let found = cluster.sandboxes(self.all_namespaces).await?;
        if json {
            let objects: Vec<_> = found.iter().map(|one| &one.object).collect();
            return output::json(&objects);
        }
        if self.quiet {
            return found.iter().try_for_each(|one| output::line(&one.name));
        }
        let namespaced = self.all_namespaces.then_some("NAMESPACE");
        let headings = namespaced
            .into_iter()
            .chain(["NAME", "API", "STATE", "NODE", "ADDRESS", "AGE"]);
        let mut table = Table::new(&headings.collect::<Vec<_>>());
        for one in &found {
            let namespace = self.all_namespaces.then(|| one.namespace.clone());
            table.row(namespace.into_iter().chain([
                one.name.clone(),
                one.family.group().to_owned(),
                one.state.clone(),
                one.node.clone(),
                one.address.clone(),
                one.age(),
            ]));
        }
        table.print()
    }
}
