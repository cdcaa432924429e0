import { ApiError, base, refused } from "../api";
import { key } from "../key";

/** Uploads a file. `fetch` does not tell how much is sent; `XMLHttpRequest` does. */
export function upload(id: string, path: string, file: File, report: (share: number) => void): Promise<void> {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open("POST", `${base}/api/v1/sandbox/files/${id}/upload?path=${encodeURIComponent(path)}`);
    request.setRequestHeader("X-API-Key", key.value);
    request.upload.onprogress = (event) => event.lengthComputable && report(event.loaded / event.total);
    request.onerror = () => failed(new ApiError(0, "The connection broke. Upload the file again."));
    request.onload = () => {
      if (request.status < 300) return done();
      let error: unknown = request.responseText;
      try {
        error = JSON.parse(request.responseText);
      } catch {
        // It is a text.
      }
      failed(refused(request.status, error));
    };
    const form = new FormData();
    form.append("file", file);
    request.send(form);
  });
}
