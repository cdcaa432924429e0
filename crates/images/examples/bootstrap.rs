//! Builds an image from a recipe, and prints its duration and size.
//!
//! ```text
//! bootstrap <recipe.toml> <directory of the store> [name]
//! ```

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use shoal_core::image::{Progress, ProgressSink};
use shoal_images::bootstrap::Recipe;
use shoal_images::{ImageStore, NoLayerUsers, StoreConfig};

/// Prints each step when it starts.
struct Steps {
    begun: Instant,
    last: Mutex<String>,
}

impl ProgressSink for Steps {
    fn report(&self, progress: Progress) {
        let mut last = self.last.lock();
        if *last != progress.step {
            eprintln!(
                "{:6.1} s  {}",
                self.begun.elapsed().as_secs_f32(),
                progress.step
            );
            *last = progress.step;
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: bootstrap <recipe.toml> <directory of the store> [name]";
    let (recipe, root) = arguments.next().zip(arguments.next()).ok_or(usage)?;
    let name = arguments.next().unwrap_or_else(|| "base".to_owned());
    let recipe = Recipe::from_toml(&std::fs::read_to_string(recipe)?)?;
    let store = ImageStore::open(StoreConfig::at(root), Arc::new(NoLayerUsers))?;
    let begun = Instant::now();
    let steps = Steps {
        begun,
        last: Mutex::new(String::new()),
    };
    let image = store
        .bootstrap(name.parse()?, &recipe, Arc::new(steps))
        .await?;
    let (seconds, size) = (begun.elapsed().as_secs_f32(), image.size_bytes >> 20);
    println!(
        "{} in {seconds:.1} s, {size} MiB, {}",
        image.name, image.digest
    );
    for directory in store.lower_dirs(&image.name).unwrap_or_default() {
        println!("{}", directory.display());
    }
    Ok(())
}
