"""A server with TF Serving's REST and gRPC APIs, for tests where there is no TF Serving.

It answers from the SavedModels themselves, and says no to what TF Serving says no to.

As a process of its own: `python -m tests.serving_peer NAME=DIRECTORY` prints its ports as JSON, and
ends when its standard input is closed.
"""

import base64
import binascii
import contextlib
import http.server
import json
import pathlib
import re
import sys
import threading
import time
from concurrent import futures

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

# The regular expressions of `http_rest_api_handler.cc`.
PREDICT_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?:predict", re.IGNORECASE)
STATUS_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?", re.IGNORECASE)
# Of `http_server.cc`.
HTTP_STATUSES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
NO_LIMIT = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Peer:
    """Models, and the two servers that answer for them.

    Args:
        directories: dictionary from a model's name to the directory of its versions.
    """

    def __init__(self, directories):
        self.models = {name: load_versions(path) for name, path in directories.items()}
        # Seconds that each prediction takes longer, for tests of slow servers.
        self.delay = 0
        self.rest_port = self.grpc_port = None

    @contextlib.contextmanager
    def serve(self, rest_port=0, grpc_port=0):
        """Answers while the context is open, at any ports that are free or at these."""
        rest = RestServer(("127.0.0.1", rest_port), RestHandler)
        rest.peer = self
        threading.Thread(target=rest.serve_forever, daemon=True).start()
        rpc = grpc.server(futures.ThreadPoolExecutor(8), options=NO_LIMIT)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Prediction(self), rpc)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelStatus(self), rpc)
        self.rest_port = rest.server_port
        self.grpc_port = rpc.add_insecure_port(f"127.0.0.1:{grpc_port}")
        rpc.start()
        try:
            yield self
        finally:
            rest.shutdown()
            rest.server_close()
            rpc.stop(grace=None).wait()

    def url(self, api, name):
        """What a client calls a model."""
        if api == "rest":
            return f"http://127.0.0.1:{self.rest_port}/v1/models/{name}"
        return f"grpc://127.0.0.1:{self.grpc_port}/{name}"

    def versions(self, name, version=None):
        """The versions of a model that a request may mean."""
        versions = self.models.get(name, {})
        if version is not None:
            versions = {number: versions[number] for number in versions if number == version}
        if not versions:
            what = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise tf.errors.NotFoundError(None, None, f"Servable not found for request: {what}")
        return versions

    def signature(self, name, version, signature_name):
        versions = self.versions(name, version)
        signatures = versions[max(versions)].signatures
        signature_name = signature_name or "serving_default"
        if signature_name not in signatures:
            raise tf.errors.InvalidArgumentError(
                None, None, f'Serving signature name: "{signature_name}" not found in signature def'
            )
        return signatures[signature_name]

    def predict(self, signature, inputs):
        """The outputs as NumPy arrays."""
        time.sleep(self.delay)
        specs = input_specs(signature)
        if set(inputs) != set(specs):
            raise tf.errors.InvalidArgumentError(
                None, None, f"input keys {sorted(inputs)} do not match signature {sorted(specs)}"
            )
        tensors = {}
        for key, value in inputs.items():
            tensors[key] = tf.convert_to_tensor(value)
            if not specs[key].is_compatible_with(tensors[key]):
                raise tf.errors.InvalidArgumentError(
                    None, None, f"input {key} must be {specs[key]}, not {tensors[key].dtype}"
                )
        return {key: value.numpy() for key, value in signature(**tensors).items()}

    def status(self, name, version=None):
        """The answer of both APIs."""
        answer = get_model_status_pb2.GetModelStatusResponse()
        for number in sorted(self.versions(name, version), reverse=True):
            one = answer.model_version_status.add(version=number)
            one.state = get_model_status_pb2.ModelVersionStatus.AVAILABLE
            one.status.error_message = ""
        return answer


def load_versions(directory):
    """The SavedModels of a directory whose names are numbers."""
    folders = [path for path in pathlib.Path(directory).iterdir() if path.name.isdigit()]
    return {int(path.name): tf.saved_model.load(path) for path in folders}


def input_specs(signature):
    return signature.structured_input_signature[1]


class RestServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class RestHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *arguments):
        """Tests are silent."""

    def do_GET(self):
        self.answer(STATUS_PATH, self.get_status)

    def do_POST(self):
        self.answer(PREDICT_PATH, self.post_predict)

    def answer(self, pattern, respond):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = pattern.fullmatch(self.path)
        try:
            if not parts:
                raise tf.errors.InvalidArgumentError(
                    None, None, f"Malformed request: {self.command} {self.path}"
                )
            name, version = parts[1], parts[2] and int(parts[2])
            status, text = 200, respond(name, version, body)
        except tf.errors.OpError as error:
            status = HTTP_STATUSES.get(code_name(error), 500)
            text = f'{{ "error": "{c_escape(error.message)}" }}'
        self.send(status, text.encode())

    def send(self, status, content):
        # A client that has given up has closed the connection.
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def get_status(self, name, version, body):
        return json_format.MessageToJson(
            self.server.peer.status(name, version),
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )

    def post_predict(self, name, version, body):
        peer = self.server.peer
        request = parse_json(body)
        signature = peer.signature(name, version, request.get("signature_name"))
        specs = input_specs(signature)
        columns = columns_of(request, specs)
        inputs = {key: to_tensor(value, specs.get(key)) for key, value in columns.items()}
        outputs = peer.predict(signature, inputs)
        return json.dumps(as_json(outputs, "instances" in request))


def parse_json(body):
    try:
        request = json.loads(body)
    except ValueError as error:
        raise tf.errors.InvalidArgumentError(None, None, f"JSON Parse error: {error}") from error
    if not isinstance(request, dict) or ("instances" in request) == ("inputs" in request):
        raise tf.errors.InvalidArgumentError(
            None, None, "Request must have either 'instances' or 'inputs'"
        )
    return request


def is_named(value):
    return isinstance(value, dict) and set(value) != {"b64"}


def columns_of(request, specs):
    """The inputs by name, from the row form (`instances`) or the column form (`inputs`)."""
    if "inputs" in request:
        inputs = request["inputs"]
        return inputs if is_named(inputs) else {next(iter(specs)): inputs}
    rows = request["instances"]
    if not isinstance(rows, list) or not rows:
        raise tf.errors.InvalidArgumentError(None, None, "'instances' must be a list with values")
    if is_named(rows[0]):
        return {key: [row[key] for row in rows] for key in rows[0]}
    return {next(iter(specs)): rows}


def to_tensor(value, spec):
    try:
        return tf.constant(decode_base64(value), None if spec is None else spec.dtype)
    except (TypeError, ValueError) as error:
        raise tf.errors.InvalidArgumentError(None, None, str(error)) from error


def decode_base64(value):
    """The same with the bytes that `{"b64": ...}` stands for, in the standard alphabet."""
    if isinstance(value, dict):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except binascii.Error as error:
            raise ValueError("Unable to base64 decode") from error
    return [decode_base64(one) for one in value] if isinstance(value, list) else value


def as_json(outputs, by_row):
    """The answer, in the form that the request has."""
    lists = {key: as_text(value).tolist() for key, value in outputs.items()}
    if len(lists) == 1:
        return {"predictions" if by_row else "outputs": next(iter(lists.values()))}
    if not by_row:
        return {"outputs": lists}
    columns = lists.values()
    return {
        "predictions": [dict(zip(lists, row, strict=True)) for row in zip(*columns, strict=True)]
    }


def as_text(array):
    return np.frompyfunc(bytes.decode, 1, 1)(array) if array.dtype == object else array


def c_escape(message):
    """TF Serving's `absl::CEscape`: of a quotation mark or an umlaut it makes what JSON has not."""
    marks = {"\n": r"\n", "\r": r"\r", "\t": r"\t", '"': r"\"", "'": r"\'", "\\": r"\\"}
    return "".join(
        marks.get(chr(byte)) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")
        for byte in message.encode()
    )


def code_name(error):
    """`INVALID_ARGUMENT` and so on."""
    return next(code.name for code in grpc.StatusCode if code.value[0] == error.error_code)


@contextlib.contextmanager
def aborting(context):
    """Turns TensorFlow's errors into those of gRPC."""
    try:
        yield
    except tf.errors.OpError as error:
        context.abort(grpc.StatusCode[code_name(error)], error.message)


def named(spec):
    """The name and the version of a `ModelSpec`."""
    return spec.name, spec.version.value if spec.HasField("version") else None


class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, peer):
        self.peer = peer

    def Predict(self, request, context):  # noqa: N802
        answer = predict_pb2.PredictResponse()
        with aborting(context):
            signature = self.peer.signature(
                *named(request.model_spec), request.model_spec.signature_name
            )
            inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
            for key, value in self.peer.predict(signature, inputs).items():
                answer.outputs[key].CopyFrom(tf.make_tensor_proto(value))
        return answer


class ModelStatus(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, peer):
        self.peer = peer

    def GetModelStatus(self, request, context):  # noqa: N802
        with aborting(context):
            return self.peer.status(*named(request.model_spec))


def main():
    directories = dict(argument.split("=", 1) for argument in sys.argv[1:])
    with Peer(directories).serve() as peer:
        print(json.dumps({"rest_port": peer.rest_port, "grpc_port": peer.grpc_port}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
