//! Asking for images to be pulled before an update needs them.

use dapple_plan::daemonset::predownload::{Wish, job, pulls};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::Value;
use tracing::info;

use super::Set;
use super::io::Io;
use super::known::Known;
use super::memory::Said;

/// What came of asking.
enum Asked {
    Done,
    /// Nobody in this cluster pulls images.
    Nobody,
}

/// Asks once for each revision, when enough pods of it are ready.
pub(super) async fn pull(io: &Io, set: &Set, known: Option<&Known>, said: &mut Said) -> Result<(), kube::Error> {
    let wish = match Wish::read(&set.annotations) {
        Ok(Some(wish)) => wish,
        Ok(None) => return Ok(()),
        Err(error) => {
            if said.reported.insert(("BadAnnotation", error.to_string())) {
                io.reporter.report(set, "BadAnnotation", error.to_string());
            }
            return Ok(());
        }
    };
    let Some(known) = known else { return Ok(()) };
    let (update, tally) = (known.update.meta.key.name.clone(), known.fleet.tally());
    let is_due = known.fleet.lagging() > 0 && wish.is_due(tally.updated_ready, tally.desired);
    if said.pulled_for.as_ref() == Some(&update) || !is_due {
        return Ok(());
    }
    let moves = known.fleet.moves();
    let wanted = pulls(moves.iter().map(|(from, before, after)| (from, &**before, &**after)));
    for (image, hashes) in &wanted {
        let job = job((&set.meta.key.name, &set.meta.uid), &set.spec, &wish, (image, hashes));
        if let Asked::Nobody = ask(io, set, job).await? {
            let note = "images are not pulled beforehand: there is no ImagePullJob in this cluster";
            io.reporter.report(set, "NoImagePuller", note.to_owned());
            break;
        }
    }
    said.pulled_for = Some(update);
    Ok(())
}

async fn ask(io: &Io, set: &Set, job: Value) -> Result<Asked, kube::Error> {
    let kind = GroupVersionKind::gvk("apps.kruise.io", "v1alpha1", "ImagePullJob");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::namespaced_with(io.client.clone(), &set.meta.key.namespace, &resource);
    let object: DynamicObject = serde_json::from_value(job).map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => {
            info!(set = %set.meta.key, job = ?object.metadata.name, "asked for an image");
            Ok(Asked::Done)
        }
        Err(kube::Error::Api(error)) if error.code == 409 => Ok(Asked::Done),
        Err(kube::Error::Api(error)) if [403, 404].contains(&error.code) => Ok(Asked::Nobody),
        Err(error) => Err(error),
    }
}
