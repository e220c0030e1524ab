"""A stand-in for the Hugging Face Hub on this machine: repositories, commits and files over HTTP."""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import threading

_REPOSITORY = r"([\w.-]+/[\w.-]+)"


class Hub(http.server.ThreadingHTTPServer):
    """The commits of each repository, newest last, and the requests that were made."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.requests = []
        self.commits = {}  # by repository: (commit, message, files by name)
        self.private = {}
        self.token = "hf_secret"

    def commit(self, repository, files, message="by hand"):
        """Adds a commit to a repository, and returns its hash."""
        history = self.commits.setdefault(repository, [])
        files = {**(history[-1][2] if history else {}), **files}
        commit = hashlib.sha1(repr((len(history), message, sorted(files.items()))).encode()).hexdigest()
        history.append((commit, message, files))
        return commit

    def find(self, repository, revision):
        for commit, _, files in reversed(self.commits.get(repository, [])):
            if revision in (None, "main", commit):
                return commit, files
        return None, None


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, status, content=b"", **headers):
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_GET(self):
        path = self.path.partition("?")[0]
        self.server.requests.append(f"{self.command} {path}")
        if found := re.fullmatch(rf"/api/models/{_REPOSITORY}(?:/revision/([\w.-]+))?", path):
            commit, files = self.server.find(found[1], found[2])
            if commit is None:
                return self.answer(404, {"error": "not found"}, X_Error_Code="RepoNotFound")
            siblings = [{"rfilename": name} for name in files]
            return self.answer(200, {"_id": "1", "id": found[1], "sha": commit, "siblings": siblings})
        if found := re.fullmatch(rf"/{_REPOSITORY}/resolve/([\w.-]+)/(.+)", path):
            commit, files = self.server.find(found[1], found[2])
            if commit is None or found[3] not in files:
                code = "RepoNotFound" if commit is None else "EntryNotFound"
                return self.answer(404, {"error": "not found"}, X_Error_Code=code)
            content = files[found[3]]
            etag = f'"{hashlib.sha1(content).hexdigest()}"'
            return self.answer(200, content, ETag=etag, X_Repo_Commit=commit)
        self.answer(404, {"error": f"the stand-in has no {path}"})

    do_HEAD = do_GET  # noqa: N815 (the name that http.server calls)

    def do_POST(self):
        path = self.path.partition("?")[0]
        self.server.requests.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        if self.headers["Authorization"] != f"Bearer {self.server.token}":
            return self.answer(401, {"error": "Invalid username or password."})
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            known = name in self.server.private
            self.server.private.setdefault(name, asked.get("private") or asked.get("visibility") == "private")
            self.server.commits.setdefault(name, [])
            return self.answer(409 if known else 200, {"url": f"{self.server.endpoint}/{name}"})
        if re.fullmatch(rf"/api/models/{_REPOSITORY}/preupload/main", path):
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            return self.answer(200, {"files": files})
        if found := re.fullmatch(rf"/api/models/{_REPOSITORY}/commit/main", path):
            lines = [json.loads(line) for line in body.splitlines()]
            message = next(line["value"]["summary"] for line in lines if line["key"] == "header")
            files = {
                line["value"]["path"]: base64.b64decode(line["value"]["content"])
                for line in lines
                if line["key"] == "file"
            }
            commit = self.server.commit(found[1], files, message)
            url = f"{self.server.endpoint}/{found[1]}/commit/{commit}"
            return self.answer(200, {"commitUrl": url, "commitOid": commit, "success": True})
        self.answer(404, {"error": f"the stand-in has no {path}"})


@contextlib.contextmanager
def serve(monkeypatch, cache):
    """Yields a stand-in that huggingface_hub talks to, with its cache in a folder."""
    from huggingface_hub import constants

    with Hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        template = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.setenv("HF_TOKEN", hub.token)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        thread = threading.Thread(
            target=hub.serve_forever, args=(0.01,), daemon=True
        )  # seconds to the next look
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
