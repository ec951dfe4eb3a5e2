# The scheduled relay: a function that publishes, every minute, what no relay and no stream's function did, and ends.
resource "aws_lambda_function" "sweep" {
  count = local.sweep
  # Its log group is there before it, or the service makes one of its own.
  depends_on    = [aws_cloudwatch_log_group.sweep]
  function_name = "${var.name}-sweep"
  role          = aws_iam_role.function["sweep"].arn
  package_type  = "Image"
  image_uri     = var.functions.sweep
  timeout       = 55
  memory_size   = 256
  # Two at a time would only wait for each other's leases.
  reserved_concurrent_executions = 1
  tags                           = var.tags
  environment {
    variables = local.environment
  }
}

resource "aws_cloudwatch_event_rule" "sweep" {
  count               = local.sweep
  name                = "${var.name}-sweep"
  schedule_expression = "rate(1 minute)"
  tags                = var.tags
}

resource "aws_cloudwatch_event_target" "sweep" {
  count = local.sweep
  rule  = aws_cloudwatch_event_rule.sweep[0].name
  arn   = aws_lambda_function.sweep[0].arn
}

resource "aws_lambda_permission" "sweep" {
  count         = local.sweep
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.sweep[0].function_name
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.sweep[0].arn
}

# What the function says of itself: a line of JSON with `"message":"swept"` and `"done"`, as examples/aws-lambda logs it.
resource "aws_cloudwatch_log_group" "sweep" {
  count             = local.sweep
  name              = "/aws/lambda/${var.name}-sweep"
  retention_in_days = 30
  tags              = var.tags
}

resource "aws_cloudwatch_log_metric_filter" "sweep_not_done" {
  count          = local.sweep
  name           = "${var.name}-sweep-not-done"
  log_group_name = aws_cloudwatch_log_group.sweep[0].name
  pattern        = "{ ($.fields.message = \"swept\") && ($.fields.done IS FALSE) }"
  metric_transformation {
    namespace = "Postrider"
    name      = "${var.name}-sweep-not-done"
    value     = "1"
  }
}

resource "aws_cloudwatch_metric_alarm" "sweep_not_done" {
  count              = local.sweep
  alarm_name         = "${var.name}-sweep-not-done"
  alarm_description  = "The scheduled relay does not get done with what is pending: events are late, none is lost."
  namespace          = "Postrider"
  metric_name        = aws_cloudwatch_log_metric_filter.sweep_not_done[0].metric_transformation[0].name
  statistic          = "Sum"
  period             = 60
  evaluation_periods = 5
  # A sweep says it once, at its end, so some minutes hear of none and some of two.
  datapoints_to_alarm = 3
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm
  ok_actions          = local.alarm
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "sweep" {
  count               = local.sweep
  alarm_name          = "${var.name}-sweep-fails"
  alarm_description   = "The scheduled relay fails: events stay pending, none is lost."
  namespace           = "AWS/Lambda"
  metric_name         = "Errors"
  dimensions          = { FunctionName = aws_lambda_function.sweep[0].function_name }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm
  ok_actions          = local.alarm
  tags                = var.tags
}
